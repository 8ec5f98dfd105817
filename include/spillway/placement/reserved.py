"""Reserved GPUs: those under contract as far as they go, others only for who needs them long enough."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from spillway.errors.counts import counted
from spillway.model import Billing, Candidate, JobSpec, NodePool, Rejection
from spillway.placement.context import Context
from spillway.placement.filters import never, waits
from spillway.pricing import break_even_hours, hourly_price

MONTH_HOURS = Decimal(730)
"""Of a mean month: what is reserved is paid for all of them, used or not."""


def reserved(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether the contract has GPUs left; without one, whether the job alone is worth a month of them."""
    if candidate.billing is not Billing.RESERVED:
        return None
    pool = context.pool(candidate)
    if pool.reserved is None:
        pays_from = context.once(("break-even", candidate), lambda: _pays_from(pool))
        return None if pays_from is None else _breaks_even(job, pays_from)
    most = pool.reserved.gpus
    if job.gpus > most:
        return never("reserved", f"needs {counted(job.gpus, 'GPU')}, the contract is of {most}")
    left = most - context.once(("reserved", candidate), lambda: _in_use(candidate, context))
    if job.gpus <= left:
        return None
    return waits(
        "reserved", f"needs {counted(job.gpus, 'GPU')}, {left.normalize():f} of the {most} under contract left"
    )


def _in_use(place: Candidate, context: Context) -> Decimal:
    held = (r.gpus for r in context.snapshot.reservations if (r.cluster, r.pool, r.billing) == (
        place.cluster, place.pool, place.billing
    ))  # fmt: skip
    return sum(held, Decimal(0))


def _pays_from(pool: NodePool) -> Decimal | None:
    """Hours of a month; None where there is nothing to compare with: a price alone decides then."""
    on_demand, price = hourly_price(pool, Billing.ON_DEMAND), hourly_price(pool, Billing.RESERVED)
    return None if on_demand is None or price is None else break_even_hours(on_demand, price, MONTH_HOURS)


def _breaks_even(job: JobSpec, pays_from: Decimal) -> Rejection | None:
    trains = job.expected_duration
    if trains is not None and Decimal(trains // timedelta(seconds=1)) >= pays_from * 3600:
        return None
    told = "does not say how long it trains" if trains is None else f"trains for {trains}"
    return never(
        "reserved",
        f"{told}; without a contract (`reserved` of the pool) they pay from {pays_from:.0f} of the {MONTH_HOURS} hours "
        "of a month on",
    )
