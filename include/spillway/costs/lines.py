"""What a month cost, by whatever a person asks: department, scene, job, run, cluster, pool, billing type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from spillway.attribution import MonthlyCost, by_month, total_of
from spillway.errors import UnknownName
from spillway.model import Cluster, CostEntry
from spillway.months import Month
from spillway.pricing import EXACT, gpu_hours, monthly_due

IDLE = "(idle)"
"""The department of fixed costs of GPUs that nobody used."""

KEYS: Mapping[str, Callable[[CostEntry], str | None]] = {
    "department": lambda entry: entry.department,
    "business_scene": lambda entry: entry.business_scene,
    "job": lambda entry: entry.job,
    "run": lambda entry: entry.attempt.rpartition("-")[0],
    "cluster": lambda entry: entry.cluster,
    "pool": lambda entry: entry.pool,
    "billing": lambda entry: entry.billing.value,
}
"""What lines can be told by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """The sum of the bookings with the same values of the keys that were asked for; hours are GPU-hours.

    ``allocated`` is None where one of them does not know it. ``used`` is of the ``measured`` ones of the billed hours.
    """

    keys: tuple[str | None, ...]
    bookings: int
    allocated: Decimal | None
    billed: Decimal
    measured: Decimal
    used: Decimal
    metered: Decimal
    fixed: Decimal

    @property
    def amount(self) -> Decimal:
        return EXACT.add(self.metered, self.fixed)

    @property
    def utilisation(self) -> Decimal | None:
        """How busy the GPUs were, as far as that was measured; None where it was not."""
        return EXACT.divide(self.used, self.measured) if self.measured else None


def parts_of(entries: Iterable[CostEntry], month: Month, zone: str) -> tuple[MonthlyCost, ...]:
    """The parts of the bookings that lie in the month."""
    return tuple(part for entry in entries for part in by_month(entry, zone) if part.month == month)


def lines(parts: Iterable[MonthlyCost], by: Sequence[str]) -> tuple[CostLine, ...]:
    """A line for each combination of the keys, the most expensive first.

    Raises:
        UnknownName: bookings are not told by such a key.
    """
    for key in by:
        if key not in KEYS:
            raise UnknownName("key of costs", key, KEYS)
    groups: dict[tuple[str | None, ...], list[MonthlyCost]] = {}
    for part in parts:
        groups.setdefault(tuple(KEYS[key](part.entry) for key in by), []).append(part)
    found = (_line(keys, group) for keys, group in groups.items())
    return tuple(sorted(found, key=lambda line: (-line.amount, tuple(key or "" for key in line.keys))))


def idle_lines(
    parts: Sequence[MonthlyCost], clusters: Iterable[Cluster], month: Month, now: datetime, by: Sequence[str]
) -> tuple[CostLine, ...]:
    """The fixed costs of pools that fell due in the month until now and that no booking bears, a line a pool."""
    elapsed = gpu_hours(1, month.starts_at, max(month.starts_at, min(now, month.ends_at)))
    found = []
    for cluster in clusters:
        for pool in cluster.pools:
            due = EXACT.divide(EXACT.multiply(monthly_due(pool), elapsed), month.hours)
            borne = total_of([p.fixed for p in parts if (p.entry.cluster, p.entry.pool) == (cluster.name, pool.name)])
            if due > borne:
                names = {"department": IDLE, "cluster": cluster.name, "pool": pool.name}
                found.append(_empty(tuple(names.get(key) for key in by), fixed=EXACT.subtract(due, borne)))
    return tuple(found)


def merged(found: Iterable[CostLine]) -> tuple[CostLine, ...]:
    """One line for each combination of keys, as idle pools of a cluster have the same where pools are not asked for."""
    known: dict[tuple[str | None, ...], CostLine] = {}
    for line in found:
        before = known.get(line.keys)
        known[line.keys] = line if before is None else _added(before, line)
    return tuple(known.values())


def _line(keys: tuple[str | None, ...], parts: Sequence[MonthlyCost]) -> CostLine:
    allocated = [part.allocated for part in parts if part.allocated is not None]
    measured = [part for part in parts if part.used is not None]
    return CostLine(
        keys=keys,
        bookings=len(parts),
        allocated=total_of(allocated) if len(allocated) == len(parts) else None,
        billed=total_of([part.billed for part in parts]),
        measured=total_of([part.billed for part in measured]),
        used=total_of([part.used for part in measured if part.used is not None]),
        metered=total_of([part.metered for part in parts]),
        fixed=total_of([part.fixed for part in parts]),
    )


def _empty(keys: tuple[str | None, ...], *, fixed: Decimal) -> CostLine:
    nothing = Decimal(0)
    return CostLine(
        keys=keys, bookings=0, allocated=nothing, billed=nothing, measured=nothing, used=nothing, metered=nothing,
        fixed=fixed,
    )  # fmt: skip


def _added(one: CostLine, other: CostLine) -> CostLine:
    known = one.allocated is not None and other.allocated is not None
    return CostLine(
        keys=one.keys,
        bookings=one.bookings + other.bookings,
        allocated=total_of([h for h in (one.allocated, other.allocated) if h is not None]) if known else None,
        **{
            name: total_of([getattr(one, name), getattr(other, name)])
            for name in ("billed", "measured", "used", "metered", "fixed")
        },
    )
