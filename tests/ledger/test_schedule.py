"""By when a run has to be done, and how far what it committed takes it."""

from __future__ import annotations

from datetime import timedelta

from spillway.deadlines import RESTART
from spillway.ledger import AttemptFacts, Ledger
from spillway.model import AttemptState, JobSpec, Outcome, Schedule
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import NOW, POLICY, SNAPSHOT, reserve

HOUR = timedelta(hours=1)
STEPS: AttemptFacts = {"first_step": 1, "last_step": 40, "committed_step": 30}
JOB = job_spec(expected_duration=10 * HOUR, finish_within=20 * HOUR)


def schedule(ledger: Ledger, run: str | None, job: JobSpec) -> Schedule | None:
    return ledger.complete(run, job, SNAPSHOT, POLICY, NOW).schedule


def test_a_run_is_as_far_as_its_commits_and_has_until_its_deadline(ledger: Ledger) -> None:
    attempt, _ = reserve(ledger, "r", JOB)
    assert attempt is not None
    attempt = ledger.advance(attempt, AttemptState.STAGED)
    attempt = ledger.advance(attempt, AttemptState.LAUNCHED)
    attempt = ledger.advance(
        attempt, AttemptState.RUNNING, started_at=NOW, first_step=1, last_step=40, committed_step=30
    )
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
