"""What people order of the scaler: nodes on top, or a forced shrink with its plan. The scaler alone carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from spillway.errors import MoveRefused, PlanChanged, PoolRefused, SpillwayError, UnknownName
from spillway.errors.counts import counted
from spillway.migration import estimate
from spillway.model import Attempt, ClusterState, ManualOrder, OrderKind, PoolUse, VerdictKind
from spillway.placement.explain import name
from spillway.runs.migrating import bring, drain, order_move
from spillway.runs.move_facts import move_facts
from spillway.runs.move_plan import BEST, move_plan
from spillway.runs.scaling_facts import scalable_pools
from spillway.runs.services import Say, Services
from spillway.runs.stopping import note_ending
from spillway.scaling.approving import leaving_none, still_approved
from spillway.scaling.money import node_hour
from spillway.scaling.shrinking import (
    Departure,
    Fate,
    PlacedRun,
    ShrinkPlan,
    Way,
    choose_leaving,
    shrink_plan,
)

READY_WITHIN = timedelta(minutes=10)
"""How soon nodes that a person ordered are to be ready."""
LASTS = timedelta(hours=4)
"""How long an order holds where nobody says."""


def pool_named(services: Services, place: str) -> PoolUse:
    """The pool as it is now; nothing is written to it.

    Args:
        place: ``CLUSTER/POOL``.
    Raises:
        UnknownName, PoolRefused: there is no such pool, or it is not declared to be scaled.
        SpillwayError: it cannot be read.
    """
    known = {"/".join(key): key for key in scalable_pools(services)}
    if place not in known:
        declared = {f"{one.name}/{pool.name}" for one in services.configuration.clusters.values() for pool in one.pools}
        if place in declared:
            fix = f"declare it in clusters.yaml, or name one that does: {', '.join(known) or 'there is none'}"
            raise PoolRefused(place, "more or fewer nodes", "it declares no scaled_by", fix=fix)
        raise UnknownName("pool that can be scaled", place, known)
    cluster, pool = known[place]
    scaler = services.scaler(cluster)
    assert scaler is not None, "its cluster has a pool that is declared to be scaled"
    use = scaler.pools(mark=False)[pool]
    if isinstance(use, SpillwayError):
        raise use
    return use


def add_text(services: Services, use: PoolUse, nodes: int) -> str:
    """What ordering so many nodes more comes to, for whoever has to approve it.

    Raises:
        PoolRefused: the pool may not have so many.
    """
    place, before = f"{use.cluster}/{use.pool.name}", _wanted(services, use)
    wanted = before + nodes
    if wanted > use.pool.max_nodes:
        said = f"it is to have {before} and may have {use.pool.max_nodes}"
        raise PoolRefused(
            place, f"{counted(nodes, 'node')} more", said, fix="order fewer, or raise its max_nodes in clusters.yaml"
        )
    price = node_hour(use.pool)
    costs = "not known, for no price is declared" if price is None else f"{price * nodes:.2f}"
    return (
        f"{place}: {before} -> {wanted} nodes, ready within {READY_WITHIN.total_seconds() / 60:.0f} minutes\n"
        f"costs an hour: {costs}"
    )


def order_more(
    services: Services, place: str, nodes: int, *, order: str, by: str, lasting: timedelta = LASTS
) -> ManualOrder:
    """Order so many nodes on top of what is wanted now; the same ``order`` again is the one that was given.

    Raises:
        UnknownName, PoolRefused, SpillwayError: as ``pool_named`` and ``add_text``.
    """
    use = pool_named(services, place)
    if (known := _given(services, order)) is not None:
        return known
    add_text(services, use, nodes)
    now = services.clock()
    return services.ledger.order_nodes(
        ManualOrder(
            order=order,
            kind=OrderKind.ADD,
            cluster=use.cluster,
            pool=use.pool.name,
            nodes=nodes,
            base_nodes=_wanted(services, use),
            ordered_at=now,
            ordered_by=by,
            until=now + lasting,
            ready_by=now + READY_WITHIN,
        )
    )


def order_fewer(
    services: Services, plan: ShrinkPlan, *, order: str, by: str, lasting: timedelta = LASTS
) -> ManualOrder:
    """Order what an approved plan says: its nodes take no more pods, and leave when they are empty."""
    if (known := _given(services, order)) is not None:
        return known
    now = services.clock()
    return services.ledger.order_nodes(
        ManualOrder(
            order=order,
            kind=OrderKind.SHRINK,
            cluster=plan.cluster,
            pool=plan.pool,
            nodes=plan.nodes,
            base_nodes=plan.before,
            ordered_at=now,
            ordered_by=by,
            until=now + lasting,
            remove=plan.leaving,
        )
    )


def order_approved(
    services: Services, approved: ShrinkPlan, say: Say, *, order: str, by: str, lasting: timedelta = LASTS
) -> tuple[ManualOrder, tuple[Departure, ...]]:
    """Order what was approved as far as it still holds: the plan is made once more, and what differs is told.

    Gives the runs that leave. The same ``order`` again is the one that was given.

    Raises:
        PlanChanged: nothing of it holds any more.
        UnknownName, SpillwayError: as ``plan_shrink``.
    """
    known = _given(services, order)
    if known is not None:
        return known, tuple(one for one in approved.departures if not leaving_none(one, known.remove))
    place = f"{approved.cluster}/{approved.pool}"
    fresh = plan_shrink(services, place, approved.nodes)
    plan, differences = still_approved(approved, fresh)
    if approved.leaving and fresh.leaving and not plan.leaving:
        raise PlanChanged(place, differences)
    for line in differences:
        say(f"since the plan was shown: {line}")
    return order_fewer(services, plan, order=order, by=by, lasting=lasting), plan.departures


def plan_shrink(services: Services, place: str, nodes: int) -> ShrinkPlan:
    """What bringing the pool down to so many nodes comes to; nothing is held, moved or ended.

    Raises:
        UnknownName, SpillwayError: as ``pool_named``, or its cluster cannot be read.
    """
    use = pool_named(services, place)
    state = services.site(use.cluster).client.describe()
    here = [
        attempt
        for attempt in services.ledger.recent_attempts(services.clock())
        if attempt.outcome is None
        and (attempt.candidate.cluster, attempt.candidate.pool) == (use.cluster, use.pool.name)
    ]
    runs = _placed(services, here, state)
    leaving = set(choose_leaving(use, nodes, runs))
    affected = {run.run for run in runs if run.nodes & leaving}
    ways = {attempt.run: _way(services, attempt) for attempt in here if attempt.run in affected}
    return shrink_plan(use, nodes, runs, ways)


def depart(services: Services, departure: Departure, reason: str, say: Say, *, origin: Mapping[str, Any]) -> str:
    """Let a run leave its node as it was approved: by a move, or into the queue.

    Gives what became of it. One that cannot move any more trains on, and its node waits for its end. A run of
    which another attempt has begun since is left alone, wherever that is; the same ``origin`` again is the same order.
    """
    attempt = services.ledger.open_attempt(departure.run)
    if attempt is None:
        return f"{departure.run} has ended by itself"
    if attempt.number != departure.attempt:
        return f"{departure.run} has left: its attempt {attempt.number} is at {name(attempt.candidate)}"
    if departure.fate is Fate.MOVES and departure.way.target is not None:
        target = departure.way.target
        try:
            where = f"{target.cluster}/{target.pool}/{target.billing}"
            move = order_move(services, departure.run, where, reason, say, origin=origin)
            move = drain(services, bring(services, move, say), say)
        except MoveRefused as refused:
            return f"{departure.run} cannot move any more, and that it pauses was not approved: {refused}"
        return f"{departure.run} moves to {name(move.target)}"
    return _pause(services, attempt, reason)


def _pause(services: Services, attempt: Attempt, reason: str) -> str:
    """Have whoever carries the run end its pod with a last checkpoint; it then waits for a place like any other."""
    if attempt.ending is None:
        note_ending(services, attempt, VerdictKind.DISPLACED, f"its node leaves: {reason}")
    return f"{attempt.run} pauses: it commits, ends and waits for a place"


def _placed(services: Services, here: Sequence[Attempt], state: ClusterState) -> tuple[PlacedRun, ...]:
    """The runs that have pods on nodes there."""
    nodes: dict[str, set[str]] = {}
    for pod in state.pods:
        if pod.attempt is not None and pod.node is not None:
            nodes.setdefault(pod.attempt, set()).add(pod.node)
    now = services.clock()
    return tuple(
        PlacedRun(
            run=attempt.run,
            attempt=attempt.number,
            priority=attempt.job.priority,
            gpus=attempt.job.gpus_per_node * attempt.job.nodes,
            nodes=frozenset(nodes[attempt.label]),
            at_risk=None if (since := attempt.committed_at or attempt.started_at) is None else now - since,
        )
        for attempt in here
        if attempt.label in nodes
    )


def _way(services: Services, attempt: Attempt) -> Way:
    """Where the run would go. Its own pool is no other place: all of its nodes may be full by then."""
    try:
        plan = move_plan(services, attempt.run, BEST)
    except MoveRefused as refused:
        return _queue(services, attempt, f"no other place has room for it ({refused.places or refused.problem})")
    if (plan.target.cluster, plan.target.pool) == (attempt.candidate.cluster, attempt.candidate.pool):
        return _queue(services, attempt, "no other pool has room for it now")
    lost, paused = plan.estimate.pause["lost_steps"], plan.estimate.known_pause
    return Way(target=plan.target, why=f"advice: {plan.advice.advice}: {plan.advice.reason}", lost=lost, paused=paused)


def _queue(services: Services, attempt: Attempt, why: str) -> Way:
    expected = estimate(move_facts(services, attempt, attempt.candidate))
    return Way(target=None, why=why, lost=expected.pause["lost_steps"])


def _wanted(services: Services, use: PoolUse) -> int:
    """How many nodes are wanted of the pool: an order of more counts before the scaler has seen it."""
    orders = services.ledger.scaling_orders(services.clock())
    here = (one for one in orders if (one.cluster, one.pool) == (use.cluster, use.pool.name))
    return max(use.wanted, *(one.wanted for one in here if one.kind is OrderKind.ADD), 0)


def _given(services: Services, order: str) -> ManualOrder | None:
    return next((known for known in services.ledger.scaling_orders() if known.order == order), None)
