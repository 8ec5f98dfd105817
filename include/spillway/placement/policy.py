"""The decision where a job runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal

from spillway.model import (
    Candidate,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    PlacementVerdict,
    PreemptionPlan,
    Rejection,
    Snapshot,
)
from spillway.placement.context import Context, index
from spillway.placement.costs import costs, transfer_to
from spillway.placement.preemption import plan_preemption
from spillway.placement.rules import (
    OF_QUEUE,
    RULES,
    Bears,
    choice,
    lack_of_room,
    left,
    nothing,
    passes,
    rejections,
    what_passes,
)
from spillway.placement.scorers import SCORERS

UNKNOWN = Decimal("Infinity")
"""No price that is known is above that of a place whose price is not."""


def place(job: JobSpec, snapshot: Snapshot, policy: PlacementPolicy) -> PlacementDecision:
    """The best candidate that nothing speaks against, and the verdict on every other.

    Where something speaks against each of them, the one that others give way at, if the policy lets anybody.

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
    if verdicts and not verdicts[0].rejections:
        return _decision(job, context, tuple(verdicts), chosen=verdicts[0].candidate)
    plan = _plan(job, context)
    if plan is not None and plan.place is not None:
        verdicts.sort(key=lambda verdict: verdict.candidate != plan.place)
        return _decision(job, context, tuple(verdicts), chosen=plan.place, plan=plan)
    return _decision(
        job,
        context,
        tuple(verdicts),
        waiting=[verdict.candidate for verdict in verdicts if _only_waits(verdict)],
        queueing=[verdict.candidate for verdict in verdicts if all(map(lack_of_room, verdict.rejections))],
        plan=plan,
    )


def choose(job: JobSpec, context: Context) -> PlacementDecision:
    """The decision of ``place`` with the row of the chosen candidate alone, many times faster.

    The whole table follows from the same inputs, for whoever asks for it.

    Args:
        context: the ``index`` of a snapshot; many jobs may share one, see ``Context.deciding``.
    """
    chosen = _best(job, context)
    if chosen is not None:
        return _decision(job, context, (_verdict(job, chosen, (), context),), chosen=chosen)
    plan = _plan(job, context)
    if plan is not None and plan.place is not None:
        ((place, reasons),) = rejections(job, (plan.place,), context)
        return _decision(job, context, (_verdict(job, place, reasons, context),), chosen=place, plan=plan)
    return _decision(
        job,
        context,
        (),
        waiting=list(left(job, context, what_passes)),
        queueing=list(left(job, context, lack_of_room)),
        plan=plan,
    )


def _decision(
    job: JobSpec,
    context: Context,
    verdicts: tuple[PlacementVerdict, ...],
    *,
    chosen: Candidate | None = None,
    waiting: Sequence[Candidate] = (),
    queueing: Sequence[Candidate] = (),
    plan: PreemptionPlan | None = None,
) -> PlacementDecision:
    """What follows from the verdicts.

    Args:
        waiting: where nothing fits, the candidates that time alone may lift all rejections of.
        queueing: those of them that lack nothing but room.
        plan: who gives way where nothing fits, as far as the policy lets anybody.
    """
    snapshot = context.snapshot
    return PlacementDecision(
        job=job.name,
        taken_at=snapshot.taken_at,
        chosen=chosen,
        possible=chosen is not None or bool(waiting) or _undeclared(context),
        verdicts=verdicts,
        unreachable=snapshot.unreachable,
        queues_at=frozenset((candidate.cluster, candidate.pool) for candidate in queueing),
        needs_correction=bool(waiting) and all(candidate.cluster in snapshot.misconfigured for candidate in waiting),
        preemption=plan,
        rules=RULES,
    )


def _undeclared(context: Context) -> bool:
    """Whether a cluster's declared facts are not in the snapshot, so that it cannot be called impossible."""
    return bool(context.snapshot.unreachable.keys() - context.clusters.keys())


def _best(job: JobSpec, context: Context) -> Candidate | None:
    """The place that ``place`` chooses."""
    return next(_open(job, context, nothing), None)


def _open(job: JobSpec, context: Context, bears: Bears) -> Iterator[Candidate]:
    """The places that nothing speaks against but what is borne, the best one first.

    Who comes first in the queue is asked of the best places only.
    """
    ranked = sorted(left(job, context, bears), key=_preference(job, context))
    return (candidate for candidate in ranked if passes(OF_QUEUE, job, candidate, context, bears))


def _plan(job: JobSpec, context: Context) -> PreemptionPlan | None:
    """Who gives way to a job that nothing fits; nobody while it could begin somewhere and waits by choice."""
    if context.policy.preempt_after is None or any(True for _ in _open(job, context, choice)):
        return None
    return plan_preemption(job, context, _preference(job, context))


def _preference(job: JobSpec, context: Context) -> Callable[[Candidate], tuple[float, Decimal, Decimal]]:
    """What sorts candidates that have a price, the best one first; equal ones stay in the order of their names."""
    known = costs(job, context)

    def rank(candidate: Candidate) -> tuple[float, Decimal, Decimal]:
        total = _total((score(job, candidate, context) for score in SCORERS.values()), context)
        price, full = context.price(job, candidate), known.full_price(job, candidate, context)
        return -total, *_cheapness(UNKNOWN if price is None else price, full)

    return rank


def _verdict(job: JobSpec, candidate: Candidate, reasons: tuple[Rejection, ...], context: Context) -> PlacementVerdict:
    """Rejected candidates are scored too, to show what is missed; one without a price cannot be."""
    price = context.price(job, candidate)
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
        else costs(job, context).full_price(job, candidate, context),
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
