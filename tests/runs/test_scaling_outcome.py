"""What became of a run whose nodes were to leave: told of the attempt that was to go, and of no other one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from spillway.model import Attempt, AttemptState, Move, MoveEstimate, MoveState, Outcome, VerdictKind
from spillway.runs.scaling_outcome import fate_of
from spillway.scaling.shrinking import Departure, Fate, Way
from spillway.testing.builders import NOW, candidate, job_spec

HERE, THERE = candidate(cluster="cloud", pool="h100"), candidate()
MOVES = Departure(run="r", attempt=2, gpus=8, fate=Fate.MOVES, way=Way(target=THERE, why="it has room"))
PAUSES = Departure(run="r", attempt=2, gpus=8, fate=Fate.PAUSES, way=Way(target=None, why="no room"))


def attempt(number: int, ending: VerdictKind | None = None) -> Attempt:
    """One that ended so, or runs."""
    return Attempt(
        run="r",
        number=number,
        job=job_spec(),
        state=AttemptState.RUNNING if ending is None else AttemptState.SETTLED,
        candidate=HERE,
        reserved_at=NOW,
        lease_expires_at=NOW + timedelta(minutes=1),
        ending=ending,
        outcome=None if ending is None else Outcome.PREEMPTED,
    )


def move(of: int) -> Move:
    """A move that is done, away from that attempt."""
    return Move(
        run="r",
        number=of,
        attempt=of,
        target=THERE,
        state=MoveState.DONE,
        reason="maintenance",
        origin={},
        estimate=MoveEstimate(beforehand={}, pause={}),
        ordered_at=NOW,
        lease_expires_at=NOW,
    )


def test_a_move_of_an_earlier_attempt_is_not_taken_for_what_the_order_came_to() -> None:
    neither = "now: neither, its last attempt is running"
    attempts = [attempt(1, VerdictKind.DISPLACED), attempt(2)]
    assert fate_of(MOVES, [move(1)], attempts) == (False, f"r: planned: moves; {neither}")
    assert fate_of(PAUSES, [], attempts) == (False, f"r: planned: pauses; {neither}")
    failed = replace(move(2), state=MoveState.FAILED)
    assert fate_of(MOVES, [move(1), failed], attempts) == (False, f"r: planned: moves; {neither}")


def test_what_became_of_the_attempt_that_was_to_go_is_told_whatever_comes_after_it() -> None:
    attempts = [attempt(1), attempt(2, VerdictKind.DISPLACED), attempt(3)]
    moved = fate_of(MOVES, [move(2), replace(move(3), state=MoveState.FAILED)], attempts)
    assert moved == (True, "r: planned: moves; now: moves, done to onprem/a100/owned")
    paused = fate_of(PAUSES, [move(1), move(3)], attempts)
    assert paused == (True, "r: planned: pauses; now: pauses, goes on at cloud/h100/owned")
