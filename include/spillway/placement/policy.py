"""The decision where a job runs."""

from __future__ import annotations

from decimal import Decimal

from spillway.model import Candidate, JobSpec, PlacementDecision, PlacementPolicy, PlacementVerdict, Snapshot
from spillway.placement.context import Context, candidates, index
from spillway.placement.filters import rejections
from spillway.placement.scorers import SCORERS


def place(job: JobSpec, snapshot: Snapshot, policy: PlacementPolicy) -> PlacementDecision:
    """The best candidate that nothing speaks against, and the verdict on every other.

    Equal inputs give an equal decision, whatever the order of clusters, nodes, pods and reservations in the snapshot.
    Verdicts are in the order of preference: the chosen one, what else fits, what waits, what never fits; equal totals
    go to the cheaper, then by name.
    """
    context = index(snapshot, policy)
    # Candidates come in the order of their names, which a stable sort keeps for equal ranks.
    verdicts = sorted((_verdict(job, candidate, context, policy) for candidate in candidates(snapshot)), key=_rank)
    fits = bool(verdicts) and not verdicts[0].rejections
    # A cluster whose declared facts are not in the snapshot cannot be called impossible.
    unknown = snapshot.unreachable.keys() - context.clusters.keys()
    return PlacementDecision(
        job=job.name,
        taken_at=snapshot.taken_at,
        chosen=verdicts[0].candidate if fits else None,
        possible=bool(unknown) or any(_only_waits(verdict) for verdict in verdicts),
        verdicts=tuple(verdicts),
        unreachable=snapshot.unreachable,
    )


def _verdict(job: JobSpec, candidate: Candidate, context: Context, policy: PlacementPolicy) -> PlacementVerdict:
    """Rejected candidates are scored too, to show what is missed; one without a price cannot be."""
    price = context.prices.get(candidate)
    scores = {} if price is None else {name: score(job, candidate, context) for name, score in SCORERS.items()}
    return PlacementVerdict(
        candidate=candidate,
        rejections=rejections(job, candidate, context),
        scores=scores,
        total=_weighted_mean(scores, policy),
        price_per_gpu_hour=price,
    )


def _weighted_mean(scores: dict[str, float], policy: PlacementPolicy) -> float:
    weights = {name: policy.weights.get(name, Decimal(0)) for name in SCORERS}
    whole = sum(weights.values())
    if not scores or not whole:
        return 0.0
    # Rounded, so that equal sums of floats are ties in whatever order they were added.
    return round(sum(float(weights[name] / whole) * score for name, score in scores.items()), 9)


def _only_waits(verdict: PlacementVerdict) -> bool:
    return all(rejection.waits for rejection in verdict.rejections)


def _rank(verdict: PlacementVerdict) -> tuple[bool, bool, float, Decimal]:
    """What fits, then what waits, then what never fits; in each the best total, then the lowest price."""
    price = Decimal("Infinity") if verdict.price_per_gpu_hour is None else verdict.price_per_gpu_hour
    return bool(verdict.rejections), not _only_waits(verdict), -verdict.total, price
