"""How to spend less, with what it is concluded from and what it would save in a month."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from spillway.attribution import MonthlyCost, total_of
from spillway.costs.lines import lines
from spillway.errors.counts import counted
from spillway.model import Attempt, Billing, Cluster, ClusterState, NodePool, Outcome
from spillway.months import Month
from spillway.pricing import EXACT, break_even_hours, declared_price, gpu_hours, hourly_price

LOW_UTILISATION = Decimal("0.3")
LONG_GPU_HOURS = Decimal(24)
"""What was measured for less says little of how a job works."""

_AT_FAULT = frozenset({Outcome.FAILED, Outcome.CANCELLED, Outcome.STALLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to do. ``saves`` is money a month; ``carried_out_by`` names the DAG, or who else can do it."""

    about: str
    evidence: str
    action: str
    saves: Decimal
    carried_out_by: str


def advise(
    parts: Sequence[MonthlyCost],
    clusters: Iterable[Cluster],
    attempts: Mapping[str, Attempt],
    seen: Iterable[ClusterState],
    *,
    month: Month,
    now: datetime,
) -> tuple[Advice, ...]:
    """All advice, the largest saving first.

    Args:
        attempts: those that were booked, by label.
        seen: the clusters as they are now; those that could not be seen are left out.
    """
    declared = tuple(clusters)
    elapsed = gpu_hours(1, month.starts_at, max(month.starts_at, min(now, month.ends_at)))
    whole = EXACT.divide(month.hours, elapsed) if elapsed else Decimal(0)
    found = (
        *_underused(parts, declared, whole),
        *_reserved(parts, declared, elapsed, whole),
        *_wasted(parts, attempts, whole),
        *_idle_nodes(seen, month),
    )
    return tuple(sorted(found, key=lambda advice: (-advice.saves, advice.about)))


def _underused(parts: Sequence[MonthlyCost], clusters: Sequence[Cluster], whole: Decimal) -> Iterable[Advice]:
    """Jobs that keep bought GPUs mostly waiting: at home that costs less."""
    prices = [hourly_price(pool, Billing.OWNED) for cluster in clusters for pool in cluster.pools if pool.gpus_per_node]
    home = min((price for price in prices if price is not None), default=None)
    if home is None:
        return
    bought = [part for part in parts if part.entry.billing.bought]
    for line in lines(bought, ("job", "cluster")):
        utilisation = line.utilisation
        saves = EXACT.multiply(EXACT.subtract(line.amount, EXACT.multiply(line.billed, home)), whole)
        if utilisation is None or utilisation >= LOW_UTILISATION or line.measured < LONG_GPU_HOURS or saves <= 0:
            continue
        job, cluster = line.keys
        yield Advice(
            about=f"job {job} at {cluster}",
            evidence=f"its GPUs were busy for {utilisation:.0%} of {line.measured:.1f} measured GPU-hours",
            action=f"run it on-premises, where a GPU-hour costs {home:.2f} instead of "
            f"{EXACT.divide(line.amount, line.billed):.2f}",
            saves=saves,
            carried_out_by="migrate_job",
        )


def _reserved(
    parts: Sequence[MonthlyCost], clusters: Sequence[Cluster], elapsed: Decimal, whole: Decimal
) -> Iterable[Advice]:
    """GPUs that are bought on demand for more hours than reserved ones take to pay."""
    for cluster in clusters:
        for pool in cluster.pools:
            on_demand = hourly_price(pool, Billing.ON_DEMAND)
            reserved = declared_price(pool, Billing.RESERVED)
            if on_demand is None or reserved is None or not elapsed:
                continue
            busy = _hours_by_rank([p for p in parts if _at(p, cluster, pool) and p.entry.billing is Billing.ON_DEMAND])
            breaks_even = break_even_hours(on_demand, reserved, elapsed)
            gains = [
                EXACT.subtract(EXACT.multiply(hours, on_demand), EXACT.multiply(elapsed, reserved)) for hours in busy
            ]
            pays = [gain for gain in gains if gain > 0]
            if pays:
                yield Advice(
                    about=f"pool {cluster.name}/{pool.name}",
                    evidence=f"bought on demand for more than {breaks_even:.0f} of {elapsed:.0f} hours: "
                    f"{counted(len(pays), 'GPU')}, the last of them for {busy[len(pays) - 1]:.0f}",
                    action=f"reserve {counted(len(pays), 'GPU')} at {reserved:.2f} instead of {on_demand:.2f} an hour "
                    "and declare the contract (`reserved` of the pool)",
                    saves=EXACT.multiply(total_of(pays), whole),
                    carried_out_by="train",
                )


def _wasted(parts: Sequence[MonthlyCost], attempts: Mapping[str, Attempt], whole: Decimal) -> Iterable[Advice]:
    """What was paid for attempts that ended without a step: a job that cannot start, or a trainer that hung."""
    empty = [part for part in parts if _brought_nothing(attempts.get(part.entry.attempt))]
    for line in lines(empty, ("job",)):
        if line.amount > 0:
            yield Advice(
                about=f"job {line.keys[0]}",
                evidence=f"{line.bookings} of its attempts took {line.billed:.1f} GPU-hours and trained no step",
                action="look at their logs, end what hangs, correct the job",
                saves=EXACT.multiply(line.amount, whole),
                carried_out_by="sweep_orphans",
            )


def _idle_nodes(seen: Iterable[ClusterState], month: Month) -> Iterable[Advice]:
    """Bought nodes that run without a pod; one look tells no more than that they do now."""
    for state in seen:
        working = {pod.node for pod in state.pods}
        for pool in state.cluster.pools:
            prices = [hourly_price(pool, billing) for billing in pool.prices_per_hour if billing.bought]
            price = min((price for price in prices if price is not None), default=None)
            idle = [n for n in state.nodes if n.pool == pool.name and n.ready and n.name not in working]
            gpus = Decimal(sum(node.allocatable_gpus for node in idle)) / pool.devices_per_gpu
            if price is not None and gpus:
                yield Advice(
                    about=f"pool {state.cluster.name}/{pool.name}",
                    evidence=f"without a pod just now: {counted(len(idle), 'node')} with "
                    f"{counted(float(gpus), 'GPU', form='g')}: "
                    f"{', '.join(node.name for node in idle[:5])}{', ...' if len(idle) > 5 else ''}",
                    action="let them go until they are needed",
                    saves=EXACT.multiply(EXACT.multiply(gpus, price), month.hours),
                    carried_out_by="the pool's autoscaler, or a person",
                )


def _hours_by_rank(parts: Sequence[MonthlyCost]) -> list[Decimal]:
    """For how many hours at least one GPU was used, at least two, and so on; in hours of the month.

    Parts of GPUs count as far as they make whole ones.
    """
    changes: list[tuple[datetime, Decimal]] = []
    for part in parts:
        start = max(part.entry.started_at, part.month.starts_at)
        changes += [(start, part.entry.gpus), (min(part.entry.ended_at, part.month.ends_at), -part.entry.gpus)]
    busy: list[Decimal] = []
    used, before = Decimal(0), None
    for at, change in sorted(changes):
        if before is not None and used:
            whole = int(used)
            busy += [Decimal(0)] * (whole - len(busy))
            lasted = gpu_hours(1, before, at)
            busy = [EXACT.add(hours, lasted) if rank < whole else hours for rank, hours in enumerate(busy)]
        used, before = used + change, at
    return busy


def _at(part: MonthlyCost, cluster: Cluster, pool: NodePool) -> bool:
    return (part.entry.cluster, part.entry.pool) == (cluster.name, pool.name)


def _brought_nothing(attempt: Attempt | None) -> bool:
    """Not those whose place was lost: what they trained there may only not be known."""
    return attempt is not None and attempt.outcome in _AT_FAULT and attempt.last_step is None
