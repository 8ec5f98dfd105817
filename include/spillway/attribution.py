"""Which part of a booking belongs to which month, and sums that stay equal to the cent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from spillway.model import CostEntry
from spillway.months import Month, months_between
from spillway.pricing import EXACT, cost, gpu_hours

CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyCost:
    """The part of a booking that lies in one month, in GPU-hours and money.

    ``allocated`` is what the reservation kept from others, ``billed`` what the pod ran and the price applies to,
    ``used`` what its GPUs were busy for; None where nobody recorded it. ``fixed`` is the share of what its pool costs a
    month whether it is used or not.
    """

    month: Month
    entry: CostEntry
    billed: Decimal
    allocated: Decimal | None
    used: Decimal | None
    metered: Decimal
    fixed: Decimal

    @property
    def amount(self) -> Decimal:
        return EXACT.add(self.metered, self.fixed)


def by_month(entry: CostEntry, zone: str) -> tuple[MonthlyCost, ...]:
    """The parts of a booking, oldest month first; together they are exactly the booking.

    What began to be allocated in a month before the pod ran is a part of that month.
    """
    begins = entry.started_at if entry.reserved_at is None else min(entry.reserved_at, entry.started_at)
    months = months_between(begins, entry.ended_at, zone)
    parts = [_part(entry, month) for month in months[:-1]]
    rest = entry.amount
    for part in parts:
        rest = EXACT.subtract(rest, part.metered)
    # Every month but the last is a quotient, cut after 50 digits; the last one takes what is left.
    return (*parts, _part(entry, months[-1], metered=rest))


def within(month: Month, start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The piece of ``[start, end)`` that lies in the month, empty where nothing does."""
    begins = min(max(start, month.starts_at), month.ends_at)
    return begins, max(begins, min(end, month.ends_at))


def in_cents(amounts: Sequence[Decimal]) -> tuple[Decimal, ...]:
    """The amounts in whole cents, such that they add up to their exact sum in whole cents.

    Each is off by less than a cent; the cents that rounding down would lose go to the largest remainders.
    """
    floors = [amount.quantize(CENT, ROUND_FLOOR, EXACT) for amount in amounts]
    total = total_of(amounts).quantize(CENT, ROUND_HALF_EVEN, EXACT)
    missing = int((total - sum(floors, Decimal(0))) / CENT)
    order = sorted(range(len(amounts)), key=lambda index: (floors[index] - amounts[index], index))
    for index in order[:missing]:
        floors[index] += CENT
    return tuple(floors)


def total_of(amounts: Sequence[Decimal]) -> Decimal:
    """Their sum, exact; 0 of none."""
    total = Decimal(0)
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total


def _part(entry: CostEntry, month: Month, *, metered: Decimal | None = None) -> MonthlyCost:
    start, end = within(month, entry.started_at, entry.ended_at)
    billed = gpu_hours(entry.gpus, start, end)
    reserved = entry.reserved_at
    return MonthlyCost(
        month=month,
        entry=entry,
        billed=billed,
        allocated=None if reserved is None else gpu_hours(entry.gpus, *within(month, reserved, entry.ended_at)),
        used=None if entry.utilisation is None else EXACT.multiply(billed, entry.utilisation),
        metered=cost(entry.priced_units, start, end, entry.price_per_gpu_hour) if metered is None else metered,
        fixed=EXACT.divide(
            EXACT.multiply(gpu_hours(entry.priced_units, start, end), entry.fixed_cost_per_gpu_month), month.hours
        ),
    )
