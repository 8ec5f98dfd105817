"""By when a run has to be done, and how far what it committed takes it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spillway.deadlines import ORDERED_BY, RESTART
from spillway.ledger import AttemptFacts, Ledger
from spillway.ledger.rows import fetch_open_attempts
from spillway.model import Attempt, AttemptState, Destination, JobSpec, MoveEstimate, Outcome, Schedule
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import LEASE, NOW, POLICY, SNAPSHOT, counting, reserve

HOUR = timedelta(hours=1)
STEPS: AttemptFacts = {"first_step": 1, "last_step": 40, "committed_step": 30}
JOB = job_spec(expected_duration=10 * HOUR, finish_within=20 * HOUR)


def training(ledger: Ledger) -> Attempt:
    """An attempt that has done forty steps and committed thirty of them."""
    attempt, _ = reserve(ledger, "r", JOB)
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    return ledger.advance(attempt, AttemptState.RUNNING, started_at=NOW, **STEPS)


def schedule(ledger: Ledger, run: str | None, job: JobSpec) -> Schedule | None:
    return ledger.complete(run, job, SNAPSHOT, POLICY, NOW).schedule


def test_a_run_is_as_far_as_its_commits_and_has_until_its_deadline(ledger: Ledger) -> None:
    attempt = training(ledger)
    ledger.settle(attempt, Outcome.PREEMPTED, "reclaimed", NOW + 4 * HOUR)
    found = schedule(ledger, "r", JOB)
    assert found == Schedule(began_at=NOW, deadline=NOW + 20 * HOUR, work=10 * HOUR, done=3 * HOUR, restart=RESTART)
    reserve(ledger, "r", JOB, now=NOW + 5 * HOUR)
    assert ledger.decisions("r")[-1].snapshot.schedule == found


def test_a_run_that_is_asked_for_now_begins_now_and_one_without_a_deadline_has_none(ledger: Ledger) -> None:
    assert schedule(ledger, None, JOB) == Schedule(
        began_at=NOW, deadline=NOW + 20 * HOUR, work=10 * HOUR, done=timedelta(), restart=RESTART
    )
    assert schedule(ledger, None, job_spec(expected_duration=HOUR)) is None
    reserve(ledger, "r")
    assert schedule(ledger, "r", job_spec()) is None


def test_a_run_that_trains_is_as_far_as_what_it_has_committed_by_now(ledger: Ledger) -> None:
    training(ledger)
    found = ledger.schedule("r", JOB, NOW + 4 * HOUR)
    assert found == Schedule(began_at=NOW, deadline=NOW + 20 * HOUR, work=10 * HOUR, done=3 * HOUR, restart=RESTART)
    assert ledger.schedule("r", job_spec(), NOW) is None


@pytest.mark.parametrize(
    ("ordered_by", "drained", "moved"),
    [(ORDERED_BY, True, True), (ORDERED_BY, False, False), ("a person", True, False)],
    ids=["asked to leave for it", "only ordered", "moved by a person"],
)
def test_a_run_that_was_asked_to_leave_spot_for_its_deadline_is_known_to(
    ledger: Ledger, ordered_by: str, drained: bool, moved: bool
) -> None:
    move, _ = ledger.order_move(
        training(ledger),
        destination=Destination(spot=False),
        reason="its deadline is near",
        origin={"ordered_by": ordered_by},
        estimate=MoveEstimate(beforehand={}, pause={}),
        now=NOW,
        lease=LEASE,
        snapshot=SNAPSHOT,
        policy=POLICY,
        decide=counting(JOB, capacity=10),
    )
    assert move is not None
    if drained:
        ledger.drain_move(move, NOW)
    found = ledger.schedule("r", JOB, NOW)
    assert found is not None
    assert found.moved is moved
    with ledger.database.reading() as connection:
        assert [attempt.left_spot for attempt in fetch_open_attempts(connection)] == [moved]
