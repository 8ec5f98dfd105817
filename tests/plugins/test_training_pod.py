"""What the operator of a training makes of an end that somebody else has given its run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from spillway.codec import decode, encode
from spillway.deadlines import ORDERED_BY
from spillway.ledger import Ledger
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Candidate,
    Destination,
    MoveEstimate,
    MoveState,
    Outcome,
    VerdictKind,
)
from spillway.runs.settling import Ended
from spillway.testing.builders import job_spec
from spillway.testing.installed import Installed
from spillway.testing.ledger_values import LEASE, POLICY, SNAPSHOT, counting, reserve
from spillway.testing.task_state import TaskState
from spillway.testing.watched import Log, launched
from spillway_airflow.asking import Asking
from spillway_airflow.operators.training_pod import ASKED, TrainingPodOperator
from spillway_airflow.triggers.pod import TASK_ENDED, PodTrigger

RUN = "digits-0123456789-1"
JOB = job_spec()
SETTLED_ELSEWHERE = {
    "run": RUN,
    "number": 1,
    "ended": encode(Ended(kind=VerdictKind.FENCED, reason="attempt 1 was settled elsewhere")),
}


def context(kept: Asking | None, *, max_tries: int) -> Any:
    state = TaskState() if kept is None else TaskState({ASKED: encode(kept)})
    return {"ti": SimpleNamespace(max_tries=max_tries), "task_state_store": state}


@pytest.fixture
def cancelled(installed: Installed) -> Attempt:
    """The run's only attempt, which a person cancelled while its task was deferred."""
    ledger, now = installed.ledger, datetime.now(UTC)
    attempt, _ = reserve(ledger, RUN, JOB, now=now, decide=counting(JOB, capacity=8))
    assert attempt is not None
    return ledger.settle(attempt, Outcome.CANCELLED, "nobody needs it", now, ended_at=now)


@pytest.mark.parametrize(
    ("kept", "retries"),
    [(None, 2), (Asking(training_run=RUN, max_tries=2, asked_after=0), 5)],
    ids=["deferred by a release that kept nothing", "retries were edited while it was deferred"],
)
def test_a_task_that_resumes_does_not_undo_that_a_person_cancelled_its_run(
    installed: Installed, cancelled: Attempt, kept: Asking | None, retries: int
) -> None:
    task = TrainingPodOperator(task_id="train", training_run=RUN, retries=retries)
    now = context(kept, max_tries=2)

    for tried in (lambda: task.resume(now, SETTLED_ELSEWHERE), lambda: task.execute(now)):
        with pytest.raises(AirflowFailException, match="is cancelled: nobody needs it"):
            tried()

    assert list(installed.ledger.attempts(RUN)) == [cancelled]


CLEARED = Asking(training_run=RUN, max_tries=5, asked_after=0)


def test_a_cleared_task_goes_on_although_its_earlier_try_ends_just_after_it_has_begun(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, now = installed.ledger, datetime.now(UTC)
    attempt, _ = reserve(ledger, RUN, JOB, now=now, decide=counting(JOB, capacity=8))
    assert attempt is not None
    look = type(ledger).open_attempt

    def end_just_before_the_look(self: Ledger, run: str) -> Attempt | None:
        ledger.settle(attempt, Outcome.CANCELLED, TASK_ENDED, now, ending=VerdictKind.TASK_ENDED, ended_at=now)
        return look(self, run)

    monkeypatch.setattr(type(ledger), "open_attempt", end_just_before_the_look)

    assert asked_after_going_on(lambda task, airflow: task.execute(airflow)) == 1


def test_a_cleared_task_goes_on_although_its_earlier_try_ends_while_it_is_deferred_anew(installed: Installed) -> None:
    reserve(installed.ledger, RUN, JOB, now=datetime.now(UTC), decide=counting(JOB, capacity=8))
    ended = encode(Ended(kind=VerdictKind.TASK_ENDED, reason=TASK_ENDED))
    event = {"run": RUN, "number": 1, "ended": ended}

    assert asked_after_going_on(lambda task, airflow: task.resume(airflow, event)) == 1


def asked_after_going_on(call: Callable[[TrainingPodOperator, Any], Any]) -> int:
    """What the try of a cleared task leaves behind, once it has deferred itself to wait for the next attempt."""
    airflow = context(CLEARED, max_tries=CLEARED.max_tries)
    with pytest.raises(TaskDeferred):
        call(TrainingPodOperator(task_id="train", training_run=RUN, retries=2), airflow)
    return decode(Asking, airflow["task_state_store"][ASKED]).asked_after


def test_a_task_that_is_woken_for_a_move_goes_on_watching_where_it_is_when_the_target_is_not_ready(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, ledger = Log(), installed.ledger
    monkeypatch.setattr(TrainingPodOperator, "log", log)
    attempt = ledger.advance(launched(installed), AttemptState.RUNNING)
    target = Candidate(cluster="cloud", pool="gpu", billing=Billing.ON_DEMAND)
    ledger.order_move(
        attempt,
        destination=Destination(spot=False, leaving=attempt.candidate),
        reason="its deadline is near",
        origin={"ordered_by": ORDERED_BY},
        estimate=MoveEstimate(beforehand={}, pause={}),
        now=datetime.now(UTC),
        lease=LEASE,
        snapshot=SNAPSHOT,
        policy=POLICY,
        decide=counting(attempt.job, capacity=8, place=target),
    )

    with pytest.raises(TaskDeferred) as deferred:
        TrainingPodOperator(task_id="train", training_run=RUN).resume(
            context(None, max_tries=2), {"run": RUN, "move": 1}
        )

    assert isinstance(deferred.value.trigger, PodTrigger)
    assert ledger.move(RUN, 1).state is MoveState.FAILED
    assert log.said("cloud/gpu/on-demand: its deadline is near")
    assert log.said("is not carried out now: ")
    assert ledger.open_attempt(RUN) == attempt
