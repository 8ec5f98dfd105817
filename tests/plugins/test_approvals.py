"""An order that nobody answers: it acts on nothing, and is not asked for again."""

from __future__ import annotations

import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.exceptions import HITLTimeoutError
from airflow.sdk import RetryAction

FILE = Path(__file__).parents[2] / "dags" / "scale_manually.py"
UNANSWERED: Any = {"error": "The response timeout has passed", "error_type": "timeout"}


@pytest.fixture(scope="module")
def approve() -> Any:
    """The task that asks for approval."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of providers, whose old imports are not ours
        bag = DagBag(str(FILE))
    assert bag.import_errors == {}
    return bag.dags["scale_manually"].get_task("approve")


def test_an_hour_without_an_answer_fails_the_task_at_once_with_what_that_means(approve: Any) -> None:
    assert (approve.response_timeout, approve.defaults) == (timedelta(hours=1), None)
    with pytest.raises(HITLTimeoutError) as unanswered:
        approve.execute_complete({}, UNANSWERED)
    decision = approve.retry_policy.evaluate(unanswered.value, 1, approve.retries)
    assert decision.action is RetryAction.FAIL
    assert decision.reason == (
        "nobody answered in time, and nothing was ordered; start it again where it is still wanted"
    )
    assert approve.retry_policy.evaluate(OSError(), 1, approve.retries).action is RetryAction.DEFAULT


def test_no_task_acts_once_the_approval_has_failed(approve: Any) -> None:
    after = {task.task_id: task.trigger_rule.value for task in approve.get_flat_relatives(upstream=False)}
    assert set(after) == {"order", "scale_now", "taken_up", "leave", "effect"}
    assert set(after.values()) == {"all_success", "none_failed_min_one_success"}
