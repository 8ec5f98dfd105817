"""Spot while the deadline can wait, on-demand when it cannot, and never a deadline missed that could be met."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.deadlines import Pace, as_measured, pace, time_to_move
from spillway.model import MoveEstimate, Schedule
from spillway.testing.builders import NOW
from spillway.testing.spot_market import (
    RESTART_STEPS,
    always_on_demand,
    cheapest,
    cost_of,
    gap_ratio,
    half_way,
    steps_of_product,
)

HOUR = timedelta(hours=1)


def schedule(*, work: float, done: float, within: float, restart: float = 0.0) -> Schedule:
    """In hours."""
    return Schedule(
        began_at=NOW, deadline=NOW + within * HOUR, work=work * HOUR, done=done * HOUR, restart=restart * HOUR
    )


# After so many of 20 hours; half-way between 10 * t / 20 and 10 - (20 - t).
STANDS = {
    "at the beginning": (schedule(work=10, done=0, within=20), 0, False, Pace.AHEAD),
    "just before the line": (schedule(work=10, done=0, within=20), 6.6, False, Pace.AHEAD),
    "just behind the line": (schedule(work=10, done=0, within=20), 6.7, False, Pace.BEHIND),
    "with more done": (schedule(work=10, done=5, within=20), 12, False, Pace.AHEAD),
    "the last moment": (schedule(work=10, done=5, within=20), 15, False, Pace.LATE),
    "two restarts before the last moment": (schedule(work=10, done=5, within=20, restart=1), 13, False, Pace.LATE),
    "after the deadline": (schedule(work=10, done=9, within=20), 21, False, Pace.LATE),
    "all is done": (schedule(work=10, done=10, within=20), 19, False, Pace.AHEAD),
    "behind the line with restarts in hand": (
        schedule(work=10, done=0, within=20, restart=0.2), 6.6, False, Pace.BEHIND,
    ),
    "on-demand goes on until it is ahead by two restarts": (
        schedule(work=10, done=5, within=20, restart=0.5), 12, True, Pace.BEHIND,
    ),
    "which one that waits need not be": (schedule(work=10, done=5, within=20, restart=0.5), 12, False, Pace.AHEAD),
}  # fmt: skip


@pytest.mark.parametrize(("given_", "hours", "on_demand", "stands"), STANDS.values(), ids=STANDS)
def test_how_a_job_stands_with_its_deadline(given_: Schedule, hours: float, on_demand: bool, stands: Pace) -> None:
    assert pace(given_, NOW + hours * HOUR, on_demand=on_demand) is stands


@given(
    work=st.integers(1, 40),
    slack=st.integers(0, 40),
    spot=st.lists(st.booleans(), min_size=90, max_size=90),
)
def test_no_deadline_is_missed_that_on_demand_from_the_beginning_meets(work: int, slack: int, spot: list[bool]) -> None:
    window = spot[: work + slack]
    if cost_of(always_on_demand, work, window) is not None:
        assert cost_of(half_way, work, window) is not None


@given(
    work=st.integers(1, 40),
    slack=st.integers(0, 60),
    commit_every=st.integers(1, 40),
    bring=st.integers(0, 10),
    spot=st.lists(st.booleans(), min_size=120, max_size=120),
)
@settings(max_examples=150)
def test_a_job_that_is_watched_on_spot_leaves_it_once_and_in_time_whatever_is_lost_when(
    work: int, slack: int, commit_every: int, bring: int, spot: list[bool]
) -> None:
    window = spot[: bring + RESTART_STEPS + work + slack]
    done_at, moves = steps_of_product(work, window, commit_every=commit_every, bring=bring)
    assert done_at is not None, "on-demand from the beginning meets the deadline"
    assert moves <= 1


def test_a_job_that_was_moved_for_its_deadline_stays_late() -> None:
    moved = replace(schedule(work=10, done=9, within=20), moved=True)
    assert pace(moved, NOW) is Pace.LATE
    assert pace(replace(moved, moved=False), NOW) is Pace.AHEAD


def test_a_move_takes_all_but_lost_steps_and_a_restart_for_each_term_that_nobody_knows() -> None:
    expected = MoveEstimate(
        beforehand={"image": None, "dataset": 2 * HOUR, "checkpoints": timedelta()},
        pause={"flush": HOUR / 4, "last_checkpoint": None, "restart": HOUR / 4, "lost_steps": 9 * HOUR},
    )
    assert time_to_move(expected, HOUR) == 4.5 * HOUR


def test_what_is_left_is_the_longer_of_what_was_said_and_what_is_measured() -> None:
    said = schedule(work=10, done=4, within=20)
    assert as_measured(said, None) == as_measured(said, HOUR) == said
    assert as_measured(said, 8 * HOUR).work_left == 8 * HOUR


@given(
    work=st.integers(1, 20),
    slack=st.integers(RESTART_STEPS, 20),
    spot=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_nobody_is_cheaper_than_who_knows_the_future(work: int, slack: int, spot: list[bool]) -> None:
    window = spot[: work + slack]
    found = cost_of(half_way, work, window)
    assert found is not None
    assert cheapest(work, window) <= found + 1e-9


@pytest.mark.parametrize(("slack", "times"), [(1.1, 1.4), (1.3, 1.4), (1.5, 1.4), (2.0, 1.0)])
def test_the_gap_to_perfect_foresight_is_smaller_than_that_of_greedy(slack: float, times: float) -> None:
    """By seeds that nobody chose the policy with."""
    assert gap_ratio(slack, range(100, 103)) >= times
