"""Whose turn it is: a backfill's run waits for those before it, and for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pendulum
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
from spillway_airflow.timetables import LastWeekOfMonth
from spillway_airflow.triggers.dag_run import DagRunTrigger

BACKFILL, SCHEDULED, MANUAL = DagRunType.BACKFILL_JOB, DagRunType.SCHEDULED, DagRunType.MANUAL
RUNNING, QUEUED, SUCCESS, FAILED = DagRunState.RUNNING, DagRunState.QUEUED, DagRunState.SUCCESS, DagRunState.FAILED


def run_id(month: int, run_type: DagRunType = BACKFILL) -> str:
    """As Airflow names the run at the start of the window."""
    start = pendulum.instance(window_of(month_of(datetime(2026, month, 15, tzinfo=UTC), "UTC"), Iteration()).starts_at)
    return LastWeekOfMonth().generate_run_id(run_type=run_type, run_after=start, data_interval=None)


def run(month: int, state: DagRunState, run_type: DagRunType = BACKFILL) -> Any:
    """A run of the DAG for a window of 2026."""
    window = window_of(month_of(datetime(2026, month, 15, tzinfo=UTC), "UTC"), Iteration())
    return SimpleNamespace(
        dag_id="monthly_iteration",
        run_id=run_id(month, run_type),
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

    def count(*, dag_id: str, run_ids: list[str], states: list[str]) -> int:
        return sum(o.dag_id == dag_id and o.run_id in run_ids and o.state.value in states for o in others)

    ti = SimpleNamespace(get_previous_dagrun=previous, get_dr_count=count)
    return {"ti": ti, "dag_run": this, "dag": SimpleNamespace(dag_id=this.dag_id, params={})}


JUNE = run(6, RUNNING)
EARLIER = {
    "none": ([], None),
    "a running one": ([run(5, RUNNING)], run_id(5)),
    "the last of two": ([run(4, RUNNING), run(5, RUNNING)], run_id(5)),
    "a running one behind one that has ended": ([run(4, RUNNING), run(5, SUCCESS)], run_id(4)),
    "one that has failed": ([run(5, FAILED)], None),
    "one that succeeded": ([run(5, SUCCESS)], None),
    "one of the schedule": ([run(5, RUNNING, SCHEDULED)], run_id(5, SCHEDULED)),
    "one of the schedule that has its turn next": ([run(5, QUEUED, SCHEDULED)], run_id(5, SCHEDULED)),
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
    assert f"{run_id(6)} waits until {run_id(5)} has ended" in capsys.readouterr().out


def test_it_looks_again_when_the_one_that_it_waited_for_has_ended() -> None:
    sensor, event = WindowSensor(task_id="window"), {"run_id": run_id(5)}
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute_again(context(JUNE, run(4, RUNNING), run(5, SUCCESS)), event)
    assert deferred.value.method_name == "execute_again"
    assert sensor.execute_again(context(JUNE, run(4, FAILED), run(5, SUCCESS)), event)["starts_at"][:7] == "2026-06"


SCHEDULES = {
    "that of the window before": ([run(5, RUNNING, SCHEDULED)], True),
    "that of the window before, which has its turn next": ([run(5, QUEUED, SCHEDULED)], True),
    "that of the window before, behind one by hand": ([run(5, RUNNING, SCHEDULED), run(5, SUCCESS, MANUAL)], True),
    "one that has failed": ([run(5, FAILED, SCHEDULED)], False),
    "one of a backfill": ([run(5, RUNNING)], False),
    "one by hand": ([run(5, RUNNING, MANUAL)], False),
}


@pytest.mark.parametrize(("others", "waits"), SCHEDULES.values(), ids=SCHEDULES)
def test_a_run_of_the_schedule_waits_for_that_of_the_window_before_and_for_no_other(
    installed: Installed, others: list[Any], waits: bool
) -> None:
    sensor, june = WindowSensor(task_id="window"), context(run(6, RUNNING, SCHEDULED), *others)
    if not waits:
        assert sensor.execute(june)["starts_at"] == "2026-06-24T00:00:00+00:00"
        return
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(june)
    trigger = deferred.value.trigger
    assert isinstance(trigger, DagRunTrigger)
    assert trigger.run_id == run_id(5, SCHEDULED)


def test_a_run_by_hand_waits_for_nobody() -> None:
    others = [run(month, RUNNING, kind) for month in (4, 5) for kind in (SCHEDULED, BACKFILL)]
    found = WindowSensor(task_id="window").execute(context(run(6, RUNNING, MANUAL), *others))
    assert found["starts_at"] == "2026-06-24T00:00:00+00:00"


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("at_once", [1, 3, 10])
def test_a_year_is_run_whole_and_in_order_however_many_airflow_starts_at_once(at_once: int, backwards: bool) -> None:
    """Airflow begins runs in the order of the backfill, as many as it may; each asks for its turn when it will."""
    year = [run(month, QUEUED) for month in range(1, 13)]
    asked = list(reversed(year)) if backwards else year
    ended: list[int] = []
    while len(ended) < len(year):
        under_way = [one for one in asked if one.state is RUNNING]
        for one in [one for one in asked if one.state is QUEUED][: at_once - len(under_way)]:
            one.state = RUNNING
        turns = []
        for one in reversed([one for one in asked if one.state is RUNNING]):
            with suppress(TaskDeferred):
                WindowSensor(task_id="window").execute(context(one, *year))
                turns.append(one)
        assert turns, f"nobody has a turn after {ended}"
        if not backwards:
            assert len(turns) == 1
        for one in turns:
            one.state = SUCCESS
            ended.append(one.logical_date.month)
    assert sorted(ended) == list(range(1, 13))
    assert backwards or ended == sorted(ended)


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
