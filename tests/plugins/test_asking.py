"""Which tries of a task were asked for by somebody, and which are Airflow's own repetitions.

The numbers are Airflow's: a start gives ``max_tries = retries``, a clear after try ``n`` gives ``n + retries``, a retry
changes nothing. Here ``retries`` is 2 where a case does not say otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from spillway.model import Attempt, AttemptState, Outcome, VerdictKind
from spillway.testing.builders import attempt
from spillway_airflow.asking import Asking, asking

RUN = "digits-1"
OPEN = None
STARTED = Asking(training_run=RUN, max_tries=2, asked_after=0)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is on record, what Airflow says of the try, how the run's attempts ended, and what is expected."""

    known: Asking | None = STARTED
    run: str = RUN
    max_tries: int = 2
    outcomes: tuple[Outcome | None, ...] = ()
    ending: VerdictKind | None = None
    asked_after: int = 0


CASES = {
    "the first start": Case(known=None, outcomes=(OPEN,)),
    "the first start of a task that is not retried": Case(known=None, max_tries=0, outcomes=(OPEN,)),
    "the first start was lost before it began": Case(known=None),
    "a retry after a worker was lost while the pod ran": Case(outcomes=(OPEN,)),
    "a retry after the program had failed": Case(outcomes=(Outcome.FAILED,)),
    "a retry after a person had cancelled the run": Case(
        outcomes=(Outcome.CANCELLED,), ending=VerdictKind.DELETED_BY_PERSON
    ),
    "a retry of a run that was lost before": Case(outcomes=(Outcome.PREEMPTED, Outcome.PREEMPTED)),
    "a resume in the same try": Case(outcomes=(Outcome.PREEMPTED,)),
    "the first resume after an upgrade, of a try that kept nothing": Case(known=None, outcomes=()),
    "cleared after retries were lowered by the one try that was used": Case(outcomes=(Outcome.FAILED,)),
    "a retry after its own worker was told to end": Case(
        outcomes=(Outcome.PREEMPTED, Outcome.CANCELLED), ending=VerdictKind.TASK_ENDED, asked_after=2
    ),
    "cleared while it ran, before Airflow has counted that": Case(
        outcomes=(Outcome.CANCELLED,), ending=VerdictKind.TASK_ENDED, asked_after=1
    ),
    "cleared after it failed": Case(max_tries=3, outcomes=(Outcome.FAILED,), asked_after=1),
    "cleared after it failed at its third try": Case(max_tries=5, outcomes=(Outcome.FAILED,), asked_after=1),
    "cleared after no progress": Case(max_tries=3, outcomes=(Outcome.PREEMPTED,) * 3, asked_after=3),
    "cleared, not retried": Case(max_tries=1, outcomes=(Outcome.FAILED,), asked_after=1),
    "cleared, and its worker was lost before anything began": Case(
        max_tries=3, outcomes=(Outcome.FAILED,), asked_after=1
    ),
    "cleared, and its worker was lost after it had failed again": Case(
        known=Asking(training_run=RUN, max_tries=3, asked_after=1),
        max_tries=3,
        outcomes=(Outcome.FAILED, Outcome.FAILED),
        asked_after=1,
    ),
    "cleared while its pod ran": Case(max_tries=3, outcomes=(Outcome.FAILED, OPEN), asked_after=1),
    "the whole pipeline cleared, which opens another run": Case(run="digits-2", max_tries=3, outcomes=(OPEN,)),
    "marked as failed and cleared": Case(
        max_tries=3, outcomes=(Outcome.CANCELLED,), ending=VerdictKind.TASK_ENDED, asked_after=1
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_person_asks_anew_and_airflow_repeats_what_was_asked(case: Case) -> None:
    attempts = [ended(number, outcome, case.ending) for number, outcome in enumerate(case.outcomes, start=1)]
    expected = Asking(training_run=case.run, max_tries=case.max_tries, asked_after=case.asked_after)

    seen = asking(case.known, training_run=case.run, max_tries=case.max_tries, attempts=attempts)
    again = asking(seen, training_run=case.run, max_tries=case.max_tries, attempts=attempts)

    assert (seen, again) == (expected, expected)


def ended(number: int, outcome: Outcome | None, ending: VerdictKind | None) -> Attempt:
    state = AttemptState.RUNNING if outcome is None else AttemptState.SETTLED
    return attempt(run=RUN, number=number, state=state, outcome=outcome, ending=ending if outcome else None)
