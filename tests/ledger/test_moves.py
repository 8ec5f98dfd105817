"""Moves in the ledger: what they hold, where they lead, and how the attempts of their run conclude them."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from spillway.errors import IllegalTransition, MoveRefused
from spillway.ledger import Ledger
from spillway.ledger.schema import moves
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Candidate,
    Destination,
    Move,
    MoveEstimate,
    MoveState,
    Outcome,
    PlacementDecision,
    PlacementVerdict,
    Rejection,
    Snapshot,
)
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import LEASE, NOW, PLACE, POLICY, SNAPSHOT, counting, reserve, reserved

CLOUD = Candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
TO_CLOUD = Destination(cluster="cloud", leaving=PLACE)
ESTIMATE = MoveEstimate(beforehand={"image": timedelta(seconds=2), "dataset": None}, pause={"restart": timedelta(0)})
LATER = NOW + timedelta(minutes=1)


def running(ledger: Ledger, run: str = "r") -> Attempt:
    attempt = reserved(ledger, run)
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED, AttemptState.RUNNING):
        attempt = ledger.advance(attempt, state)
    return attempt


def decide(whole: Snapshot) -> PlacementDecision:
    """The cloud where that is asked for, else on premises; two GPUs each."""
    wanted = whole.destination
    place = PLACE if wanted is None or wanted.allows(PLACE) else CLOUD
    found = counting(job_spec(), capacity=2, place=place)(whole)
    if found.chosen is not None:
        return found
    full = PlacementVerdict(
        candidate=place, rejections=(Rejection(rule="full", reason="2 of 2", waits=True),), scores={}, total=0.0
    )
    return dataclasses.replace(found, verdicts=(full,))


def order(ledger: Ledger, leaving: Attempt, **changes: Any) -> tuple[Move | None, PlacementDecision | None]:
    given: dict[str, Any] = {
        "destination": TO_CLOUD,
        "reason": "maintenance",
        "origin": {"run_id": "a"},
        "estimate": ESTIMATE,
        "now": NOW,
        "lease": LEASE,
        "snapshot": SNAPSHOT,
        "policy": POLICY,
        "decide": decide,
    }
    return ledger.order_move(leaving, **given | changes)


def ordered(ledger: Ledger, leaving: Attempt) -> Move:
    move, _ = order(ledger, leaving)
    assert move is not None
    return move


def test_an_order_holds_its_target_beside_the_place_that_the_run_has(ledger: Ledger) -> None:
    leaving = running(ledger)
    move = ordered(ledger, leaving)
    assert move == Move(
        run="r",
        number=1,
        attempt=1,
        target=CLOUD,
        state=MoveState.ORDERED,
        reason="maintenance",
        origin={"run_id": "a"},
        estimate=ESTIMATE,
        ordered_at=NOW,
        lease_expires_at=NOW + LEASE,
    )
    assert ledger.moves("r") == (move,) == (ledger.open_move("r"),)
    assert [(r.attempt, r.cluster) for r in ledger.reservations()] == [("r-1", "onprem"), ("r-2", "cloud")]
    assert ledger.open_attempt("r") == leaving
    record = ledger.decisions("r")[-1]
    assert (record.attempt, record.snapshot.destination, record.decision.chosen) == (None, TO_CLOUD, CLOUD)
    assert decide(record.snapshot) == record.decision


def test_what_a_move_holds_is_taken_for_everybody_else(ledger: Ledger) -> None:
    for run in ("a", "b"):
        ordered(ledger, running(ledger, run))
    third = running(ledger, "c")
    assert order(ledger, third)[0] is None
    assert ledger.moves("c") == ()
    placed, _ = reserve(ledger, "d", decide=counting(job_spec(), capacity=2, place=CLOUD))
    assert placed is None


def test_the_next_attempt_takes_the_held_place_and_holds_it_once(ledger: Ledger) -> None:
    leaving = running(ledger)
    move = ledger.drain_move(ordered(ledger, leaving), LATER)
    ledger.settle(leaving, Outcome.MIGRATED, "moved", LATER)
    assert [r.attempt for r in ledger.reservations()] == ["r-2"]
    arrived, decision = reserve(ledger, "r", now=LATER, decide=decide)
    assert arrived is not None
    assert (arrived.number, arrived.candidate, decision.chosen) == (2, CLOUD, CLOUD)
    assert [r.attempt for r in ledger.reservations()] == ["r-2"]
    now = ledger.move("r", 1)
    assert now == dataclasses.replace(move, state=MoveState.ARRIVING, to_attempt=2)
    assert reserve(ledger, "r", now=LATER, decide=decide)[1] == decision, "asking again decides nothing"


def test_a_target_that_is_lost_before_the_hand_over_fails_the_move_and_any_place_will_do(ledger: Ledger) -> None:
    leaving = running(ledger)
    ledger.drain_move(ordered(ledger, leaving), LATER)
    ledger.settle(leaving, Outcome.MIGRATED, "moved", LATER)
    for other in ("x", "y"):
        reserve(ledger, other, decide=counting(job_spec(), capacity=9, place=CLOUD))
    back, _ = reserve(ledger, "r", now=LATER, decide=decide)
    assert back is not None and back.candidate == PLACE
    move = ledger.move("r", 1)
    assert (move.state, move.to_attempt, move.ended_at) == (MoveState.FAILED, None, LATER)
    assert move.problem == "its target does not fit any more: full: 2 of 2"
    towards, away = ledger.decisions("r")[-2:]
    assert (towards.attempt, away.attempt, away.snapshot.destination) == (None, 2, None)
    assert towards.snapshot.destination is not None and towards.snapshot.destination.allows(CLOUD)


def test_the_first_step_at_the_target_concludes_the_move(ledger: Ledger) -> None:
    leaving = running(ledger)
    ledger.drain_move(ordered(ledger, leaving), NOW + timedelta(seconds=20))
    ledger.settle(leaving, Outcome.MIGRATED, "moved", LATER, committed_step=30)
    arrived, _ = reserve(ledger, "r", now=LATER, decide=decide)
    assert arrived is not None
    arrived = ledger.amend(arrived, resumed_from_step=30, first_step=31)
    done = ledger.confirm_move(arrived, LATER)
    assert done is not None
    assert (done.state, done.resumed_step, done.resumed_at, done.ended_at) == (MoveState.DONE, 31, LATER, LATER)
    assert (done.took, done.paused) == (timedelta(seconds=60), timedelta(seconds=40))
    assert ledger.confirm_move(arrived, LATER + LEASE) is None
    assert ledger.open_move("r") is None
    assert ledger.moves("r") == (done,)


@pytest.mark.parametrize(
    ("first_step", "state", "problem"),
    [
        (31, MoveState.DONE, None),
        (None, MoveState.FAILED, "attempt 2 did no step there: evicted"),
        (1, MoveState.FAILED, "attempt 2 began with step 1 there: evicted"),
    ],
    ids=["after a step", "without a step", "after another step"],
)
def test_an_attempt_that_ends_at_the_target_concludes_the_move(
    ledger: Ledger, first_step: int | None, state: MoveState, problem: str | None
) -> None:
    leaving = running(ledger)
    ordered(ledger, leaving)
    ledger.settle(leaving, Outcome.PREEMPTED, "node lost", LATER)
    arrived, _ = reserve(ledger, "r", now=LATER, decide=decide)
    assert arrived is not None and arrived.candidate == CLOUD, "a run that is lost before it is drained arrives"
    ledger.settle(arrived, Outcome.PREEMPTED, "evicted", LATER, resumed_from_step=30, first_step=first_step)
    move = ledger.move("r", 1)
    assert (move.state, move.problem) == (state, problem)


@pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED])
def test_a_run_that_ends_before_it_is_moved_ends_its_move(ledger: Ledger, outcome: Outcome) -> None:
    leaving = running(ledger)
    ledger.drain_move(ordered(ledger, leaving), LATER)
    ledger.settle(leaving, outcome, "the end", LATER)
    move = ledger.move("r", 1)
    assert (move.state, move.problem) == (MoveState.FAILED, f"its run ended before: {outcome} (the end)")
    assert ledger.reservations() == ()


def test_an_attempt_that_nobody_looks_after_at_the_target_concludes_the_move(ledger: Ledger) -> None:
    leaving = running(ledger)
    ordered(ledger, leaving)
    ledger.settle(leaving, Outcome.MIGRATED, "moved", LATER)
    arrived, _ = reserve(ledger, "r", now=LATER, decide=decide)
    assert arrived is not None
    ledger.expire(arrived, LATER + 2 * LEASE)
    assert ledger.move("r", 1).state is MoveState.FAILED


def test_a_cancelled_run_gives_back_what_its_move_holds(ledger: Ledger) -> None:
    leaving = running(ledger)
    ordered(ledger, leaving)
    ledger.settle(leaving, Outcome.PREEMPTED, "node lost", LATER)
    ledger.cancel_run("r", "enough seen", LATER)
    move = ledger.move("r", 1)
    assert (move.state, move.problem) == (MoveState.FAILED, "its run was cancelled: enough seen")
    assert ledger.reservations() == ()


def test_an_order_that_nobody_renews_frees_its_target_and_one_that_is_drained_is_held_with_its_run(
    ledger: Ledger,
) -> None:
    leaving = running(ledger)
    move = ordered(ledger, leaving)
    ledger.renew_lease(leaving, NOW + 3 * LEASE)
    assert ledger.renew_move(move, NOW + LEASE).lease_expires_at == NOW + LEASE
    assert ledger.expire_moves(NOW + LEASE - timedelta(seconds=1)) == ()
    (given_up,) = ledger.expire_moves(NOW + LEASE)
    assert given_up.state is MoveState.FAILED and "nobody renewed it" in str(given_up.problem)
    assert [r.attempt for r in ledger.reservations()] == ["r-1"]
    with pytest.raises(IllegalTransition, match="nobody renewed it"):
        ledger.drain_move(move, LATER)
    again, _ = order(ledger, leaving, now=NOW + LEASE)
    assert again is not None and again.number == 2
    ledger.drain_move(again, NOW + LEASE)
    ledger.renew_lease(leaving, NOW + 4 * LEASE)
    assert ledger.expire_moves(NOW + 4 * LEASE - timedelta(seconds=1)) == ()


def test_one_move_of_a_run_is_under_way_at_a_time(ledger: Ledger) -> None:
    leaving = running(ledger)
    move = ordered(ledger, leaving)
    assert order(ledger, leaving, origin={"run_id": "b"}) == (move, None)
    with pytest.raises(MoveRefused, match=r"move 1 to cloud/h100/on-demand is under way \(ordered\).* to edge"):
        order(ledger, leaving, destination=Destination(cluster="edge"))
    row = {"run": "r", "number": 2, "attempt": 1, "cluster": "c", "pool": "p", "billing": "spot", "state": "ordered"}
    values = row | {"reason": "", "origin": {}, "estimate": ESTIMATE, "ordered_at": NOW, "lease_expires_at": NOW}
    with pytest.raises(IntegrityError), ledger.engine.begin() as connection:
        connection.execute(insert(moves).values(values))


@pytest.mark.parametrize("steps", range(3), ids=["reserved", "staged", "launched"])
def test_only_a_run_that_runs_still_is_moved(ledger: Ledger, steps: int) -> None:
    attempt = reserved(ledger, "r")
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED)[:steps]:
        attempt = ledger.advance(attempt, state)
    with pytest.raises(MoveRefused, match=f"expected attempt 1 to be running, attempt 1 is {attempt.state} now"):
        order(ledger, attempt)
    ledger.settle(attempt, Outcome.CANCELLED, "enough", LATER)
    with pytest.raises(MoveRefused, match="it has none that is open now"):
        order(ledger, attempt)
