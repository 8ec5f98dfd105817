"""Who gives way to a job that comes first and fits nowhere.

An attempt may give way where its priority is lower than the job's, or where it is the same and runs on GPUs that its
department borrows while the job stays within what is its department's own; where its job may be interrupted; and once
it has trained for as long as the policy leaves it alone. Of these the ones that lose least give way: GPU-seconds since
their newest committed step. Nobody does unless the job then fits by every filter there is, and none whose end it does
not need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from spillway.model import Candidate, JobSpec, OpenAttempt, PreemptionPlan, Reservation, SiteKind, Snapshot, Victim
from spillway.placement.capacity import need_of
from spillway.placement.context import Context
from spillway.placement.fewest import fewest
from spillway.placement.filters import too_old
from spillway.placement.rules import FILTERS, passes
from spillway.quota import gpus_kept

Preference = Callable[[Candidate], Any]
"""A key that sorts the best place first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Giver:
    """An attempt that may give way. ``seconds`` are those that its end loses, ``lost`` GPU-seconds, none more where it
    ends already; ``borrowing``: it may only because of what its department borrows.
    """

    label: str
    department: str
    cluster: str
    kind: SiteKind
    gpus: Decimal
    seconds: float
    reason: str
    borrowing: bool

    @property
    def lost(self) -> float:
        return round(float(self.gpus) * self.seconds, 3)

    @property
    def cost(self) -> tuple[float, float, str]:
        """Of work without GPUs the time counts that was trained in vain."""
        return self.lost, self.seconds, self.label


def plan_preemption(job: JobSpec, context: Context, preference: Preference) -> PreemptionPlan | None:
    """Whose end brings the job which place; None where the policy lets nobody give way, or the run is moved.

    To be asked where nothing fits. Of the places that a plan can make the one is taken whose victims lose least in all,
    then the one that is preferred.
    """
    if context.policy.preempt_after is None or context.snapshot.destination is not None:
        return None
    givers, spared = _asked(job, context)
    best: tuple[float, Candidate, Sequence[_Giver]] | None = None
    for estimate, place, order in _places(job, givers, context, preference):
        if best is not None and best[0] <= estimate:
            break
        victims = fewest(order, lambda ended, place=place: _fits(job, place, ended, context))  # type: ignore[misc]
        if victims and (best is None or _lost(victims) < best[0]):
            best = _lost(victims), place, victims
    chosen = best[2] if best else ()
    for giver in givers:
        if giver not in chosen:
            why = "its end is not needed" if best else "no place comes of it, nor of the end of all that may give way"
            spared[giver.label] = f"{why}: it would lose {giver.lost:.0f} GPU-seconds"
    return PreemptionPlan(
        place=best[1] if best else None,
        victims=tuple(Victim(attempt=v.label, lost_gpu_seconds=v.lost, reason=v.reason) for v in chosen),
        spared=dict(sorted(spared.items())),
    )


def still_needed(job: JobSpec, place: Candidate, asked: Sequence[str], context: Context) -> tuple[str, ...] | None:
    """Of those that are to give way to the job there, by their labels, who still has to; None where it does not fit.

    By the rules of the plan: whoever may not be asked any more stays, and the job borrows nothing that others leave.

    Args:
        context: of a moment at which the job itself holds nothing.
    """
    if passes(FILTERS, job, place, context):
        return ()
    if context.policy.preempt_after is None:
        return None
    may = {giver.label: giver for giver in _asked(job, context)[0]}
    order = tuple(_what_may_end((may[label] for label in asked if label in may), context))
    victims = fewest(order, lambda ended: _fits(job, place, ended, context))
    return None if victims is None else tuple(victim.label for victim in victims)


def _asked(job: JobSpec, context: Context) -> tuple[list[_Giver], dict[str, str]]:
    """Who may give way, least lost first, and why the others may not."""
    promises = {promise.attempt: promise for promise in context.snapshot.reservations}
    claimed = {label: promise.attempt for promise in promises.values() for label in promise.displaces}
    givers, spared = [], dict[str, str]()
    for attempt in context.snapshot.open_attempts:
        promise = promises.get(attempt.attempt)
        if promise is None or promise.cluster not in context.uses:
            spared[attempt.attempt] = "its cluster cannot be seen"
        elif attempt.attempt in claimed:
            spared[attempt.attempt] = f"it gives way to {claimed[attempt.attempt]} already"
        elif (why := _protected(attempt, promise, job, context)) is not None:
            spared[attempt.attempt] = why
        else:
            givers.append(_giver(attempt, promise, job, context))
    return sorted(givers, key=lambda giver: giver.cost), spared


def _protected(attempt: OpenAttempt, promise: Reservation, job: JobSpec, context: Context) -> str | None:
    """Why the attempt gives way to nobody, or not to this job."""
    now, left_alone = context.snapshot.taken_at, context.policy.preempt_after
    assert left_alone is not None
    lower = attempt.priority.level > job.priority.level
    if not lower and not (attempt.priority is job.priority and _takes_back(job, promise, context)):
        return f"{attempt.priority} does not come after {job.priority}"
    if not attempt.interruptible:
        return "it may not be interrupted (spot_ok is false)"
    if attempt.left_spot:
        return "it was moved off spot for its deadline, to what nobody takes away"
    if attempt.started_at is None:
        return "it does not train yet"
    if now - attempt.started_at < left_alone:
        return f"it trains since {_moment(attempt.started_at)} and is left alone for {left_alone} (preempt_after)"
    if attempt.moving:
        return "it is being moved"
    if attempt.lease_expires_at <= now:
        return "nobody carries it now, so nobody would end it"
    return None


def _takes_back(job: JobSpec, promise: Reservation, context: Context) -> bool:
    """Whether the attempt's department borrows there, and the job takes nothing but what is its own department's."""
    kind = context.clusters[promise.cluster].kind
    quotas, used, kept = context.quotas[kind], context.used[kind], _kept(kind, context)
    within_own = used.get(job.department, 0) + job.gpus <= quotas.own.get(job.department, 0)
    borrows = quotas.lent(kept) > 0 and quotas.beyond(kept).get(promise.department, 0) > 0
    return promise.gpus > 0 and within_own and borrows


def _kept(kind: SiteKind, context: Context) -> Mapping[str, Decimal]:
    """GPUs that departments use there beside what is given up already."""
    promises, clusters = context.snapshot.reservations, context.clusters.values()
    return context.once(("kept", kind), lambda: gpus_kept(promises, clusters, kind))


def _giver(attempt: OpenAttempt, promise: Reservation, job: JobSpec, context: Context) -> _Giver:
    now, began, committed = context.snapshot.taken_at, attempt.started_at, attempt.committed_at
    assert began is not None
    borrowing = attempt.priority is job.priority
    # Of what nobody knows when it was committed all counts since the start: more is never lost.
    since = began if committed is None else max(began, committed)
    first = f"'{promise.department}' borrows its GPUs" if borrowing else f"{attempt.priority} is below {job.priority}"
    done = (
        f"began {_moment(began)} and has committed nothing known"
        if committed is None
        else f"committed {_moment(since)}"
    )
    return _Giver(
        label=attempt.attempt,
        department=promise.department,
        cluster=promise.cluster,
        kind=context.clusters[promise.cluster].kind,
        gpus=promise.gpus,
        seconds=0.0 if attempt.ending else max(0.0, (now - since).total_seconds()),
        reason=f"{first}, and it {'is ending already' if attempt.ending else done}",
        borrowing=borrowing,
    )


def _moment(when: datetime) -> str:
    return when.isoformat(timespec="seconds")


def _places(
    job: JobSpec, givers: Sequence[_Giver], context: Context, preference: Preference
) -> list[tuple[float, Candidate, Sequence[_Giver]]]:
    """Each pool, bought the best way, where the job would fit if all of them ended, those that cost least first.

    With what its victims would lose, about, and the order in which to let them end.
    """
    if not givers:
        return []
    all_ended = _after(context, givers)
    suited = sorted((place for place in all_ended.candidates if passes(FILTERS, job, place, all_ended)), key=preference)
    pools: dict[tuple[str, str], Candidate] = {}
    for place in suited:
        pools.setdefault((place.cluster, place.pool), place)
    found = []
    for place in pools.values():
        first, estimate = _nearest(job, place, givers, context)
        others = (giver for giver in givers if giver not in first)
        found.append((estimate, place, tuple(_what_may_end([*first, *others], context))))
    return sorted(found, key=lambda one: one[0])


def _nearest(
    job: JobSpec, place: Candidate, givers: Sequence[_Giver], context: Context
) -> tuple[Collection[_Giver], float]:
    """Those whose end makes room on nodes of the pool, the cheapest nodes first, and what the job's pods would cost.

    This looks at nodes one by one, and at nothing but what their pods take: it puts the search in an order.
    """
    use, pod = context.uses[place.cluster], need_of(job)
    unfit = too_old(job.image, (place.cluster, place.pool), context)
    by_label, nodes = {giver.label: giver for giver in givers}, []
    for node in use.usable(place.pool):
        there = (by_label[label] for label in use.attempts_on(node) if label in by_label)
        freed = fewest(
            sorted(there, key=lambda giver: giver.cost),
            lambda ended, node=node: use.left(node, _labels(ended)).times(pod) > 0,  # type: ignore[misc]
        )
        if freed is not None and node not in unfit:
            nodes.append((_lost(freed), node, freed))
    nodes.sort(key=lambda one: one[:2])
    first: dict[_Giver, None] = {}
    estimate, blocks = 0.0, 0
    for _, node, freed in nodes:
        if blocks < job.nodes:
            estimate += _lost([giver for giver in freed if giver not in first])
            blocks += use.left(node, _labels(freed)).times(pod)
        first.update(dict.fromkeys(freed))
    return first, estimate


def _what_may_end(order: Iterable[_Giver], context: Context) -> Iterator[_Giver]:
    """In this order, those that run on borrowed GPUs only as long as any are lent to their department."""
    beyond = {kind: dict(quotas.beyond(_kept(kind, context))) for kind, quotas in context.quotas.items()}
    lent = {kind: quotas.lent(_kept(kind, context)) for kind, quotas in context.quotas.items()}
    for giver in order:
        held = beyond[giver.kind].get(giver.department, Decimal(0))
        if giver.borrowing and not (held > 0 and lent[giver.kind] > 0):
            continue
        beyond[giver.kind][giver.department] = held - giver.gpus
        lent[giver.kind] -= min(giver.gpus, max(Decimal(0), held))
        yield giver


def _fits(job: JobSpec, place: Candidate, ended: Sequence[_Giver], context: Context) -> bool:
    then = _after(context, ended)
    return passes(FILTERS, job, place, then)


def _after(context: Context, ended: Sequence[_Giver]) -> Context:
    """What is known once these have ended. The job borrows nothing then: nobody gives way so that others may borrow."""
    then = context.after(without(context.snapshot, _labels(ended)), {giver.cluster for giver in ended})
    return replace(then, policy=replace(context.policy, borrowing=False))


def without(seen: Snapshot, ended: Set[str]) -> Snapshot:
    """The snapshot once these attempts have ended, by their labels."""
    clusters = tuple(
        replace(state, pods=tuple(pod for pod in state.pods if pod.attempt not in ended)) for state in seen.clusters
    )
    promises = tuple(promise for promise in seen.reservations if promise.attempt not in ended)
    return replace(seen, clusters=clusters, reservations=promises)


def _labels(givers: Iterable[_Giver]) -> frozenset[str]:
    return frozenset(giver.label for giver in givers)


def _lost(givers: Iterable[_Giver]) -> float:
    return round(sum(giver.lost for giver in givers), 3)
