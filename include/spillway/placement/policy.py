"""The decision where a job runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

from spillway.model import (
    Candidate,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    PlacementVerdict,
    Rejection,
    Snapshot,
)
from spillway.placement.context import Context, index
from spillway.placement.costs import costs, transfer_to
from spillway.placement.rules import (
    BY_BILLING,
    OF_CLUSTER,
    OF_POOL,
    OF_QUEUE,
    lacks_only_room,
    may_wait,
    passes,
    rejections,
)
from spillway.placement.scorers import SCORERS

UNKNOWN = Decimal("Infinity")
"""No price that is known is above that of a place whose price is not."""


def place(job: JobSpec, snapshot: Snapshot, policy: PlacementPolicy) -> PlacementDecision:
    """The best candidate that nothing speaks against, and the verdict on every other.

    Equal inputs give an equal decision, whatever the order of clusters, nodes, pods and reservations in the snapshot.
    Verdicts are in the order of preference: the chosen one, what else fits, what waits, what never fits; equal totals
    go to the cheaper, then by name.
    """
    context = index(snapshot, policy)
    # Candidates come in the order of their names, which a stable sort keeps for equal ranks.
    verdicts = sorted(
        (
            _verdict(job, candidate, reasons, context)
            for of_cluster in context.offers
            for of_pool in of_cluster
            for candidate, reasons in rejections(job, of_pool, context)
        ),
        key=_rank,
    )
    fits = bool(verdicts) and not verdicts[0].rejections
    return PlacementDecision(
        job=job.name,
        taken_at=snapshot.taken_at,
        chosen=verdicts[0].candidate if fits else None,
        possible=_undeclared(context) or any(_only_waits(verdict) for verdict in verdicts),
        verdicts=tuple(verdicts),
        unreachable=snapshot.unreachable,
    )


class Outlook(NamedTuple):
    """What ``place`` comes to: where the job would run now, whether waiting may bring it a place, and if it has to wait
    the pools, each (cluster, pool), where it lacks nothing but room.
    """

    chosen: Candidate | None
    possible: bool
    queues_at: frozenset[tuple[str, str]] = frozenset()


def outlook(job: JobSpec, snapshot: Snapshot, policy: PlacementPolicy) -> Outlook:
    """The decision of ``place`` without its table, which takes most of the time: for whoever asks again and again."""
    context = index(snapshot, policy)
    chosen = _best(job, context)
    if chosen is not None:
        return Outlook(chosen, possible=True)
    queues_at = frozenset((c.cluster, c.pool) for c in context.candidates if lacks_only_room(job, c, context))
    possible = bool(queues_at) or _undeclared(context) or any(may_wait(job, c, context) for c in context.candidates)
    return Outlook(None, possible, queues_at)


def _undeclared(context: Context) -> bool:
    """Whether a cluster's declared facts are not in the snapshot, so that it cannot be called impossible."""
    return bool(context.snapshot.unreachable.keys() - context.clusters.keys())


def _best(job: JobSpec, context: Context) -> Candidate | None:
    """The place that ``place`` chooses.

    A place is asked no more as soon as one filter speaks against it, and who waits only for those that are the best.
    """
    fits = {
        candidate: _total((score(job, candidate, context) for score in SCORERS.values()), context)
        for of_cluster in context.offers
        if passes(OF_CLUSTER, job, of_cluster[0][0], context)
        for of_pool in of_cluster
        if passes(OF_POOL, job, of_pool[0], context)
        for candidate in of_pool
        if passes(BY_BILLING, job, candidate, context)
    }
    known = costs(job, context)

    def rank(candidate: Candidate) -> tuple[float, Decimal, Decimal]:
        full = known.full_price(candidate, context)
        return -fits[candidate], *_cheapness(context.prices[candidate], full)

    ranked = sorted(fits, key=rank)
    return next((candidate for candidate in ranked if passes(OF_QUEUE, job, candidate, context)), None)


def _verdict(job: JobSpec, candidate: Candidate, reasons: tuple[Rejection, ...], context: Context) -> PlacementVerdict:
    """Rejected candidates are scored too, to show what is missed; one without a price cannot be."""
    price = context.prices.get(candidate)
    scores = {} if price is None else {name: score(job, candidate, context) for name, score in SCORERS.items()}
    transfer = transfer_to(job, candidate.cluster, context)
    return PlacementVerdict(
        candidate=candidate,
        rejections=reasons,
        scores=scores,
        total=_total(scores.values(), context),
        price_per_gpu_hour=price,
        transfer=transfer,
        full_price_per_gpu_hour=None
        if price is None or transfer is None
        else costs(job, context).full_price(candidate, context),
    )


def _total(scores: Iterable[float], context: Context) -> float:
    """The mean of the scores, in the order of ``SCORERS``, by their weights."""
    total = 0.0
    for weight, score in zip(context.once("weights", lambda: _relative(context.policy.weights)), scores, strict=False):
        total += weight * score
    # Rounded, so that equal sums of floats are ties in whatever order they were added.
    return round(total, 9)


def _relative(weights: Mapping[str, Decimal]) -> tuple[float, ...]:
    """Each scorer's part of the whole; 0 for all of them where none counts."""
    whole = sum(weights.get(name, Decimal(0)) for name in SCORERS)
    return tuple(float(weights.get(name, Decimal(0)) / whole) if whole else 0.0 for name in SCORERS)


def _only_waits(verdict: PlacementVerdict) -> bool:
    return all(rejection.waits for rejection in verdict.rejections)


def _rank(verdict: PlacementVerdict) -> tuple[bool, bool, float, Decimal, Decimal]:
    """What fits, then what waits, then what never fits; in each the best total, then the lowest price."""
    price = UNKNOWN if verdict.price_per_gpu_hour is None else verdict.price_per_gpu_hour
    full = price if verdict.transfer is None else verdict.full_price_per_gpu_hour
    return bool(verdict.rejections), not _only_waits(verdict), -verdict.total, *_cheapness(price, full)


def _cheapness(price: Decimal, full: Decimal | None) -> tuple[Decimal, Decimal]:
    """The price with the transfer in it, which is above any other where it is unknown, then the one without."""
    return UNKNOWN if full is None else full, price
