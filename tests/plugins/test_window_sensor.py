"""Whose turn it is: a backfill's run waits for those before it, and for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType

from spillway.months import month_of
from spillway.testing.installed import Installed
from spillway.testing.watched import Running
from spillway.windows import Iteration, window_of
from spillway_airflow.sensors.window import WindowSensor
from spillway_airflow.triggers.dag_run import DagRunTrigger

BACKFILL, SCHEDULED, MANUAL = DagRunType.BACKFILL_JOB, DagRunType.SCHEDULED, DagRunType.MANUAL
RUNNING, QUEUED, SUCCESS, FAILED = DagRunState.RUNNING, DagRunState.QUEUED, DagRunState.SUCCESS, DagRunState.FAILED


def run(month: int, state: DagRunState, run_type: DagRunType = BACKFILL) -> Any:
    """A run of the DAG for a window of 2026."""
    window = window_of(month_of(datetime(2026, month, 15, tzinfo=UTC), "UTC"), Iteration())
    return SimpleNamespace(
        dag_id="monthly_iteration",
        run_id=f"{run_type}__{window.name}",
        run_type=run_type,
        state=state,
        logical_date=window.starts_at,
        data_interval_start=window.starts_at,
        data_interval_end=window.ends_at,
        run_after=window.starts_at,
        conf={},
    )


def context(this: Any, *others: Any) -> Any:
    """What Airflow gives the task of ``this`` run beside the others."""

    def previous(state: str | None = None) -> Any:
        earlier = [o for o in others if o.logical_date < this.logical_date and state in {None, o.state.value}]
        return max(earlier, key=lambda other: other.logical_date, default=None)

    ti = SimpleNamespace(get_previous_dagrun=previous)
    return {"ti": ti, "dag_run": this, "dag": SimpleNamespace(dag_id=this.dag_id, params={})}


JUNE = run(6, RUNNING)
EARLIER = {
    "none": ([], None),
    "a running one": ([run(5, RUNNING)], "backfill__2026-05"),
    "the last of two": ([run(4, RUNNING), run(5, RUNNING)], "backfill__2026-05"),
    "a running one behind one that has ended": ([run(4, RUNNING), run(5, SUCCESS)], "backfill__2026-04"),
    "one that has failed": ([run(5, FAILED)], None),
    "one that succeeded": ([run(5, SUCCESS)], None),
    "one of the schedule": ([run(5, RUNNING, SCHEDULED)], "scheduled__2026-05"),
    "one of the schedule that has its turn next": ([run(5, QUEUED, SCHEDULED)], "scheduled__2026-05"),
    "one of a backfill that Airflow has not begun": ([run(5, QUEUED)], None),
    "only a later one": ([run(7, RUNNING)], None),
}


@pytest.mark.parametrize(("others", "awaited"), EARLIER.values(), ids=EARLIER)
def test_a_run_of_a_backfill_waits_until_no_earlier_one_is_under_way(others: list[Any], awaited: str | None) -> None:
    sensor = WindowSensor(task_id="window", poll_seconds="3")
    if awaited is None:
        assert sensor.execute(context(JUNE, *others)) == {
            "starts_at": "2026-06-24T00:00:00+00:00",
            "ends_at": "2026-07-01T00:00:00+00:00",
        }
        return
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(context(JUNE, *others))
    trigger = deferred.value.trigger
    assert isinstance(trigger, DagRunTrigger)
    assert trigger.serialize()[1] == {"dag_id": "monthly_iteration", "run_id": awaited, "poll_seconds": 3.0}


def test_the_log_names_the_run_that_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TaskDeferred):
        WindowSensor(task_id="window").execute(context(JUNE, run(5, RUNNING)))
    assert "backfill__2026-06 waits until backfill__2026-05 has ended, which is running" in capsys.readouterr().out


def test_it_looks_again_when_the_one_that_it_waited_for_has_ended() -> None:
    sensor, event = WindowSensor(task_id="window"), {"run_id": "backfill__2026-05"}
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute_again(context(JUNE, run(4, RUNNING), run(5, SUCCESS)), event)
    assert deferred.value.method_name == "execute_again"
    assert sensor.execute_again(context(JUNE, run(4, FAILED), run(5, SUCCESS)), event)["starts_at"][:7] == "2026-06"


@pytest.mark.parametrize("run_type", [SCHEDULED, MANUAL])
def test_who_was_not_asked_for_by_a_backfill_waits_for_none(run_type: DagRunType) -> None:
    found = WindowSensor(task_id="window").execute(context(run(6, RUNNING, run_type), run(5, RUNNING)))
    assert found["starts_at"] == "2026-06-24T00:00:00+00:00"


def test_a_run_without_a_date_is_about_the_last_window_that_has_begun(installed: Installed) -> None:
    installed.edit("policy.yaml", lambda policy: policy.update(iteration={"days": 3}))
    this = run(6, RUNNING, MANUAL)
    this.data_interval_start = this.data_interval_end = None
    this.run_after = datetime(2026, 6, 20, tzinfo=UTC)
    assert WindowSensor(task_id="window").execute(context(this)) == {
        "starts_at": "2026-05-29T00:00:00+00:00",
        "ends_at": "2026-06-01T00:00:00+00:00",
    }


def test_the_trigger_fires_when_the_run_is_not_under_way_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has ended and one that was deleted count alike: none of the two is under way."""
    counts: Iterator[int] = iter([1, 1, 0])
    asked: list[Any] = []

    def count(**words: Any) -> int:
        asked.append(words)
        return next(counts)

    monkeypatch.setattr(RuntimeTaskInstance, "get_dr_count", staticmethod(count))

    async def fired() -> object:
        return await Running(DagRunTrigger(dag_id="d", run_id="r", poll_seconds=0)).event()

    assert asyncio.run(fired()) == {"run_id": "r"}
    assert asked == [{"dag_id": "d", "run_ids": ["r"], "states": ["queued", "running"]}] * 3
