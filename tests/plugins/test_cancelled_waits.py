"""A person ends a run while its task waits for a place: the task fails with the reason, and clearing it asks anew."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from airflow.utils.types import DagRunType

from spillway.codec import decode, encode
from spillway.model import Outcome
from spillway.testing.builders import job_spec
from spillway.testing.installed import Installed
from spillway.testing.ledger_values import NOW, reserved
from spillway.testing.task_state import TaskState
from spillway.testing.watched import Running
from spillway_airflow.asking import Asking
from spillway_airflow.operators.place_job import PlaceJobOperator
from spillway_airflow.operators.training_pod import ASKED, TrainingPodOperator
from spillway_airflow.triggers.capacity import CapacityTrigger

RUN = "digits-0123456789-1"
REASON = "nobody needs it"


def context(max_tries: int, state: TaskState) -> Any:
    """Of a task that Airflow may start so many times more."""
    ids = {"dag_id": "train", "run_id": "manual__1", "task_id": "place", "map_index": -1}
    return {
        "ti": SimpleNamespace(max_tries=max_tries, **ids),
        "task_state_store": state,
        "dag": SimpleNamespace(params={}),
        "dag_run": SimpleNamespace(conf={}, run_type=DagRunType.MANUAL),
    }


def waiting(deferred: pytest.ExceptionInfo[TaskDeferred]) -> str:
    """The run that a task has deferred itself to wait with."""
    trigger = deferred.value.trigger
    assert isinstance(trigger, CapacityTrigger)
    return str(trigger.of_run)


@pytest.mark.usefixtures("_soon")
def test_who_waits_for_a_place_is_told_that_its_run_is_cancelled(installed: Installed) -> None:
    installed.ledger.open_run(RUN, job_spec(), {}, NOW)
    installed.ledger.cancel_run(RUN, REASON, NOW)

    async def fired() -> object:
        return await Running(CapacityTrigger(job=encode(job_spec()), run=RUN, poll_seconds=3600)).event()

    assert asyncio.run(fired()) == {"run": RUN, "chosen": None}


def test_a_place_task_that_waits_fails_with_the_reason_and_asks_for_another_run_when_it_is_cleared(
    installed: Installed,
) -> None:
    task, now = PlaceJobOperator(task_id="place", job="digits"), context(2, TaskState())
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(now)
    run = waiting(deferred)
    installed.ledger.cancel_run(run, REASON, NOW)

    with pytest.raises(AirflowFailException, match=f"run '{run}' is cancelled: {REASON}"):
        task.execute_again(now, {"run": run, "chosen": None})

    with pytest.raises(TaskDeferred) as deferred:
        task.execute(now)
    assert waiting(deferred) == f"{run.rpartition('-')[0]}-2"


def test_a_training_task_that_waits_fails_with_the_reason_and_asks_for_the_run_again_when_it_is_cleared(
    installed: Installed,
) -> None:
    ledger, state = installed.ledger, TaskState()
    ledger.settle(reserved(ledger, RUN), Outcome.PREEMPTED, "its node was lost", NOW)
    task = TrainingPodOperator(task_id="train", training_run=RUN, retries=2)
    with pytest.raises(TaskDeferred):
        task.execute(context(2, state))
    ledger.cancel_run(RUN, REASON, NOW)

    with pytest.raises(AirflowFailException, match=f"run '{RUN}' is cancelled: {REASON}"):
        task.resume(context(2, state), {"run": RUN, "chosen": None})
    with pytest.raises(AirflowFailException, match="is cancelled"):  # what Airflow repeats asks for nothing anew
        task.execute(context(2, state))

    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context(3, state))
    assert waiting(deferred) == RUN
    assert decode(Asking, state[ASKED]) == Asking(training_run=RUN, max_tries=3, asked_after=1)


def test_a_run_that_is_cancelled_before_its_training_task_begins_is_not_trained(installed: Installed) -> None:
    ledger = installed.ledger
    attempt = reserved(ledger, RUN)
    ledger.cancel_run(RUN, REASON, NOW)
    ledger.settle(attempt, Outcome.CANCELLED, REASON, NOW)

    with pytest.raises(AirflowFailException, match=f"run '{RUN}' is cancelled: {REASON}"):
        TrainingPodOperator(task_id="train", training_run=RUN).execute(context(2, TaskState()))
