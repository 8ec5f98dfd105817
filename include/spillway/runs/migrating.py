"""Move a run to another place while it trains: order, bring what it needs there, drain, follow it to its first step.

The order is a row of the ledger, and whoever carries the run obeys it: nothing here ends a pod or launches one. So
whoever orders may die at any point, and doing it again goes on: a place that is held for nothing is given up with its
lease, and a run that is being drained arrives without anybody's help.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spillway.checkpoints.layout import CommittedStep
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import LaunchRefused, MoveRefused, SpillwayError
from spillway.leases import clocks_agree
from spillway.migration import same_move, told
from spillway.model import Attempt, Destination, Move, MoveState
from spillway.placement.explain import name
from spillway.placement.policy import place
from spillway.preflight import RealCluster
from spillway.runs.admission import decide, snapshot
from spillway.runs.holding import holding
from spillway.runs.launching import rehearse
from spillway.runs.move_plan import destination, move_plan, refused
from spillway.runs.moving_checkpoints import copy_checkpoints
from spillway.runs.services import Say, Services
from spillway.runs.staging import stage_datasets, stage_image

COMMIT_POLL_SECONDS = 1.0
REPLICATIONS = 3
"""How often steps are brought over before the drain, at most: each time those that were committed in the last one."""


def migrate(
    services: Services,
    run: str,
    where: str,
    reason: str,
    say: Say,
    *,
    origin: Mapping[str, Any],
    poll_seconds: float = 5.0,
    wait: timedelta = timedelta(),
) -> Move:
    """Move the run and follow it to its first step at the target; whoever carries the run takes it there.

    Args:
        where: as ``move_plan`` takes it.
        wait: for the next checkpoint, as ``bring`` takes it.
        origin: plain JSON that names who orders. The same one again is the same order, unless that has failed.
    Raises:
        MoveRefused, UnknownName: as ``order_move``, ``bring`` and ``confirmed``.
    """
    move = bring(services, order_move(services, run, where, reason, say, origin=origin), say, wait=wait)
    move = drain(services, move, say)
    said = ""
    while not confirmed(services, move):
        if (now := services.ledger.move(run, move.number).state) != said:
            said = now
            say(f"{move.label} is {said}")
        time.sleep(poll_seconds)
    move = services.ledger.move(run, move.number)
    say(story(move))
    return move


def order_move(services: Services, run: str, where: str, reason: str, say: Say, *, origin: Mapping[str, Any]) -> Move:
    """Hold the target beside the place that the run has. A move that is under way to there is held anew and given back.

    Raises:
        UnknownName, MoveRefused: as ``move_plan``; another move is under way.
    """
    ordered = [move for move in services.ledger.moves(run) if move.origin == dict(origin)]
    known = ordered[-1] if ordered and ordered[-1].state is not MoveState.FAILED else None
    if known is None and (other := services.ledger.open_move(run)) is not None:
        known = same_move(other, destination(services, where, run))
    if known is not None:
        return services.ledger.renew_move(known, services.clock() + services.configuration.runs.lease)
    plan = move_plan(services, run, where)
    wanted = plan.seen.destination
    assert wanted is not None
    move, decision = services.ledger.order_move(
        plan.leaving,
        destination=wanted,
        reason=reason,
        origin=origin,
        estimate=plan.estimate,
        now=services.clock(),
        lease=services.configuration.runs.lease,
        snapshot=plan.seen,
        policy=services.configuration.policy,
        decide=lambda whole: place(plan.leaving.job, whole, services.configuration.policy),
    )
    if move is None:
        assert decision is not None
        raise refused(run, wanted, decision)
    say(f"{move.label}: {name(plan.leaving.candidate)} -> {name(move.target)}: {reason}")
    say(f"estimate: {told(move.estimate)}\nadvice: {plan.advice.advice}: {plan.advice.reason}")
    return move


def bring(services: Services, move: Move, say: Say, *, wait: timedelta = timedelta()) -> Move:
    """Bring image, data and checkpoints to the target while the run trains on, and prove that a pod could start there.

    A move that is further on is given back as it is.

    Args:
        wait: for the run's next checkpoint, at most so long, once all else is there: where the last one does not fit
            the grace, a drain loses the steps since the newest.
    Raises:
        MoveRefused: the target cannot take the run, or the link to it is down; the move has failed and the run goes on
            where it is. Or it has failed meanwhile.
    """
    move = _not_failed(services, move)
    if move.state is not MoveState.ORDERED:
        return move
    leaving = services.ledger.attempt(move.run, move.attempt)
    at_target = dataclasses.replace(leaving, number=leaving.number + 1, candidate=move.target)
    try:
        with holding(services, move):
            stage_image(services, at_target, say)
            stage_datasets(services, leaving.job, move.target.cluster, say, run=move.run)
            _bring_checkpoints(services, leaving, move.target.cluster, say)
            _require_rights(services, move.target.cluster)
            rehearse(services, at_target)
            if wait > timedelta():
                _await_commit(services, leaving, wait, say)
                _bring_checkpoints(services, leaving, move.target.cluster, say)
    except SpillwayError as problem:
        return _give_up(services, move, f"{move.target.cluster} is not ready for it: {problem}", problem)
    return _not_failed(services, move)


def drain(services: Services, move: Move, say: Say) -> Move:
    """Let the run's pod end, once the target was looked at a last time; a move that is further on stays as it is.

    Raises:
        MoveRefused: the target does not fit any more; the move has failed and the run goes on where it is.
        IllegalTransition: the move has failed meanwhile.
    """
    move = services.ledger.move(move.run, move.number)
    if move.state is MoveState.ORDERED:
        _require_target(services, move)
        move = services.ledger.drain_move(move, services.clock())
        say(f"{move.label}: the pod of attempt {move.attempt} is asked to end by whoever carries the run")
    return move


def confirmed(services: Services, move: Move) -> bool:
    """Whether the first step at the target was seen.

    Raises:
        MoveRefused: the move has failed, or nobody carries the run to its target now; the message says why.
    """
    move = services.ledger.move(move.run, move.number)
    if _lapsed(services, move) and clocks_agree(snapshot(services)):
        services.ledger.expire_moves(services.clock())
        move = services.ledger.move(move.run, move.number)
        if _lapsed(services, move):
            seen = f"nobody carries attempt {move.to_attempt} at {name(move.target)}, its lease is over"
            follows = "`runs start` of its job, or clearing its task in Airflow, goes on with it"
            raise MoveRefused(move.run, f"{seen}; {follows}", retry_helps=True)
    if move.state is MoveState.FAILED:
        problem = f"move {move.number} to {name(move.target)} failed: {move.problem}"
        raise MoveRefused(move.run, f"{problem}; `runs show {move.run}` tells where it goes on")
    return move.state is MoveState.DONE


def story(move: Move) -> str:
    """What became of the move, in a line."""
    to = f"move {move.number}: attempt {move.attempt} -> {name(move.target)} ({move.reason}): {move.state}"
    if move.took is None:
        return to + (f": {move.problem}" if move.problem else "")
    paused = "" if move.paused is None else f", {move.paused.total_seconds():.1f} s of them to be drained and resumed"
    expected = f"{move.estimate.known.total_seconds():.1f} s"
    unknown = f" without {', '.join(move.estimate.unknown)}" if move.estimate.unknown else ""
    return (
        f"{to}: step {move.resumed_step} after {move.took.total_seconds():.1f} s{paused} "
        f"(estimated {expected}{unknown})"
    )


def _bring_checkpoints(services: Services, leaving: Attempt, target: str, say: Say) -> None:
    """Replicate until nothing new was committed meanwhile, so that only the last checkpoint is left for the pause."""
    source, target = (services.store_site(leaving.job, name) for name in (leaving.candidate.cluster, target))
    for _ in range(0 if source == target else REPLICATIONS):
        if not copy_checkpoints(services, leaving, source, target, say).steps_copied:
            return


def _await_commit(services: Services, leaving: Attempt, wait: timedelta, say: Say) -> None:
    """Return when the run has committed another step, has ended, or was waited for long enough."""
    checkpoints = CheckpointStore(services.checkpoints(leaving), leaving.run)
    before, until = _newest(checkpoints), time.monotonic() + wait.total_seconds()
    say(f"{leaving.run}: waiting for its next checkpoint, at most {wait.total_seconds():.0f} s")
    while _newest(checkpoints) == before and services.ledger.attempt(leaving.run, leaving.number).outcome is None:
        if time.monotonic() >= until:
            say(f"{leaving.run}: it committed nothing in {wait.total_seconds():.0f} s and is moved all the same")
            return
        time.sleep(min(COMMIT_POLL_SECONDS, wait.total_seconds()))


def _newest(checkpoints: CheckpointStore) -> CommittedStep | None:
    """Of HEAD only this tells of commits: prunes rewrite the rest."""
    head = checkpoints.head()
    return None if head is None else head.newest


def _require_rights(services: Services, target: str) -> None:
    """Refuse a target whose API lets this identity do less than a run needs."""
    client = services.site(target).client
    lacking = client.missing_rights() if isinstance(client, RealCluster) else None
    needed = [right for right in lacking or () if right.to_run]
    if needed:
        words = "; ".join(f"{', '.join(right.verbs)} {right.resource}" for right in needed)
        raise LaunchRefused(f"the identity at {target} may not {words}; `preflight` tells which roles it needs")


def _require_target(services: Services, move: Move) -> None:
    """Refuse, and give the move up, where what it holds does not fit any more."""
    job = services.ledger.job(move.run)
    target = move.target
    wanted = Destination(cluster=target.cluster, pool=target.pool, billing=target.billing)
    decision = decide(services, job, dataclasses.replace(snapshot(services, job), destination=wanted), move.run)
    if decision.chosen is None:
        problem = refused(move.run, wanted, decision)
        _give_up(services, move, problem.problem, problem)


def _lapsed(services: Services, move: Move) -> bool:
    """Whether nobody holds the target any more, or carries the run that has it, by the clock here."""
    held = move if move.to_attempt is None else services.ledger.attempt(move.run, move.to_attempt)
    return move.open and held.lease_expires_at <= services.clock()


def _not_failed(services: Services, move: Move) -> Move:
    """The move as it is stored; raises MoveRefused where it has failed meanwhile, as when its hold was over."""
    move = services.ledger.move(move.run, move.number)
    if move.state is MoveState.FAILED:
        why = f"move {move.number} has failed meanwhile: {move.problem}; order it again"
        raise MoveRefused(move.run, why, retry_helps=True)
    return move


def _give_up(services: Services, move: Move, problem: str, cause: SpillwayError) -> Move:
    """Fail a move before the run is asked to leave; where another process has asked it meanwhile, give what is stored.

    Raises:
        MoveRefused: the move has failed.
    """
    stored = services.ledger.fail_move(move, problem, services.clock())
    if stored.state is MoveState.FAILED:
        why = f"{stored.problem}; it goes on where it is"
        raise MoveRefused(move.run, why, retry_helps=cause.retry_helps) from cause
    return stored
