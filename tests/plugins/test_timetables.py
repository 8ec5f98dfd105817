"""The timetable of the monthly iteration, asked as Airflow asks it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pendulum
import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.utils.types import DagRunType

from spillway.errors import ConfigError
from spillway.months import month_of
from spillway.testing.installed import Installed
from spillway.windows import Iteration, window_of, windows_between
from spillway_airflow import timetables
from spillway_airflow.timetables import LastWeekOfMonth

BERLIN = "Europe/Berlin"
ZONES = ("UTC", BERLIN, "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "Africa/Cairo")
JANUARY = pendulum.datetime(2026, 1, 1)
Ask = Callable[..., DagRunInfo | None]


def declare(installed: Installed, **iteration: object) -> None:
    installed.edit("policy.yaml", lambda policy: policy.update(iteration=iteration))


@pytest.fixture
def ask(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask for the run after ``last`` at a moment, as the scheduler does."""
    declare(installed, days=7, time_zone=BERLIN)

    def at(
        moment: datetime,
        last: DataInterval | None = None,
        *,
        catchup: bool = False,
        earliest: pendulum.DateTime | None = JANUARY,
        latest: pendulum.DateTime | None = None,
    ) -> DagRunInfo | None:
        monkeypatch.setattr(timetables, "now", lambda: moment)
        restriction = TimeRestriction(earliest=earliest, latest=latest, catchup=catchup)
        return LastWeekOfMonth().next_dagrun_info(last_automated_data_interval=last, restriction=restriction)

    return at


def window(year: int, month: int, iteration: Iteration | None = None) -> DataInterval:
    """The window of a month as Airflow has it."""
    iteration = iteration or Iteration(time_zone=BERLIN)
    found = window_of(month_of(datetime(year, month, 15, tzinfo=UTC), iteration.time_zone), iteration)
    return DataInterval(start=pendulum.instance(found.starts_at), end=pendulum.instance(found.ends_at))


def run_of(interval: DataInterval) -> DagRunInfo:
    """The run at the start of its window."""
    return DagRunInfo(run_after=interval.start, data_interval=interval)


@pytest.mark.parametrize("catchup", [False, True], ids=["no-catch-up", "catch-up"])
class TestTheLastRunDecides:
    def test_the_same_answer_before_during_and_at_the_last_moment_of_the_window(self, ask: Ask, catchup: bool) -> None:
        may = window(2026, 5)
        moments = [
            may.start - timedelta(days=20),
            may.start - timedelta(seconds=1),
            may.start,
            may.start + timedelta(minutes=5),
            may.start + timedelta(hours=3, minutes=59),
            may.start + timedelta(hours=4, minutes=1),
            may.end - timedelta(microseconds=1),
        ]
        assert [ask(at, window(2026, 4), catchup=catchup) for at in moments] == [run_of(may)] * len(moments)

    def test_asked_again_while_its_run_is_there_it_is_the_next_window(self, ask: Ask, catchup: bool) -> None:
        may, june = window(2026, 5), window(2026, 6)
        moments = (may.start, may.start + timedelta(days=3), may.end, june.start)
        assert [ask(at, may, catchup=catchup) for at in moments] == [run_of(june)] * 4

    def test_a_run_that_is_ahead_of_the_clock_is_followed_by_the_window_after_it(self, ask: Ask, catchup: bool) -> None:
        assert ask(window(2026, 3).start, window(2026, 9), catchup=catchup) == run_of(window(2026, 10))

    def test_the_first_run_is_of_the_window_under_way_or_of_the_first_since_the_start_date(
        self, ask: Ask, catchup: bool
    ) -> None:
        may = window(2026, 5)
        assert ask(may.end - timedelta(hours=1), earliest=may.start, catchup=catchup) == run_of(may)
        later = may.start + timedelta(seconds=1)
        assert ask(may.end - timedelta(hours=1), earliest=later, catchup=catchup) == run_of(window(2026, 6))

    def test_no_run_after_the_end_date(self, ask: Ask, catchup: bool) -> None:
        may, june = window(2026, 5), window(2026, 6)
        assert ask(may.end, may, catchup=catchup, latest=june.start) == run_of(june)
        assert ask(may.end, may, catchup=catchup, latest=june.start - timedelta(seconds=1)) is None

    def test_no_start_date_and_no_run_is_no_run(self, ask: Ask, catchup: bool) -> None:
        assert ask(window(2026, 5).start, earliest=None, catchup=catchup) is None


def test_forty_days_late_each_month_comes_once_with_catch_up(ask: Ask) -> None:
    late = window(2026, 5).end + timedelta(days=40)
    last, found = window(2026, 4), []
    while (info := ask(late, last, catchup=True)) is not None and info.run_after <= late:
        assert info.data_interval is not None
        last = info.data_interval
        found.append(last)
    assert found == [window(2026, 5), window(2026, 6)]


def test_forty_days_late_without_catch_up_only_windows_that_have_ended_are_left_out(ask: Ask) -> None:
    june, july = window(2026, 6), window(2026, 7)
    assert ask(window(2026, 5).end + timedelta(days=40), window(2026, 4)) == run_of(july)
    assert ask(june.end - timedelta(seconds=1), window(2026, 4)) == run_of(june)
    assert ask(june.end, window(2026, 4)) == run_of(july)


def test_a_declaration_of_other_days_runs_no_month_twice(installed: Installed, ask: Ask) -> None:
    may = window(2026, 5)
    for iteration in ({"days": 3}, {"days": 20}, {"days": "ISO week"}):
        declare(installed, time_zone=BERLIN, **iteration)
        info = ask(may.start + timedelta(hours=1), may, catchup=True)
        assert info is not None and info.run_after.in_timezone(BERLIN).month == 6


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("days", [7, "ISO week"])
def test_thirty_six_months_are_a_run_each_with_an_id_of_its_own(
    installed: Installed, ask: Ask, days: int | str, zone: str
) -> None:
    declare(installed, days=days, time_zone=zone)
    iteration = Iteration(days=days if isinstance(days, int) else None, time_zone=zone)
    last, runs = None, []
    for _ in range(36):
        info = ask(JANUARY.add(years=3), last, catchup=True)
        assert info is not None and info.data_interval is not None
        last = info.data_interval
        runs.append(info)
    expected = windows_between(JANUARY, JANUARY.add(years=3), iteration)[-36:]
    assert [(info.run_after, info.data_interval) for info in runs] == [
        (one.starts_at, (one.starts_at, one.ends_at)) for one in expected
    ]
    assert all(one.data_interval.end <= other.data_interval.start for one, other in pairwise(runs))
    ids = {
        kind: {
            LastWeekOfMonth().generate_run_id(run_type=kind, run_after=i.run_after, data_interval=i.data_interval)
            for i in runs
        }
        for kind in (DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB)
    }
    assert [len(found) for found in ids.values()] == [36, 36]
    assert not set.intersection(*ids.values())


def test_a_run_by_hand_is_about_the_window_under_way_or_the_last_one(installed: Installed) -> None:
    declare(installed, days=7, time_zone=BERLIN)
    may = window(2026, 5)
    inferred = {
        at: LastWeekOfMonth().infer_manual_data_interval(run_after=at)
        for at in (may.start - timedelta(seconds=1), may.start, may.end, may.end + timedelta(days=10))
    }
    assert list(inferred.values()) == [window(2026, 4), may, may, may]


def test_airflow_stores_it_and_gets_it_back(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.plugins_manager.get_timetables_plugins", lambda: {NAME: LastWeekOfMonth})
    with DAG(dag_id="monthly", schedule=LastWeekOfMonth(), start_date=JANUARY) as dag:
        pass
    stored = DagSerialization.to_dict(dag)
    back = DagSerialization.from_dict(stored)

    assert stored["dag"]["timetable"] == {"__type": NAME, "__var": {}}
    assert type(back.timetable) is LastWeekOfMonth
    assert back.timetable.periodic
    months = [info.logical_date for info in back.iter_dagrun_infos_between(JANUARY, JANUARY.add(months=6))]
    assert [moment.month for moment in months if moment is not None] == [1, 2, 3, 4, 5, 6]


NAME = "spillway_airflow.timetables.LastWeekOfMonth"


def test_a_mistake_in_the_declaration_is_told_and_mended_without_a_restart(installed: Installed, ask: Ask) -> None:
    declare(installed, days=40)
    with pytest.raises(ConfigError, match=r"iteration\.days: expected a number of days from 1 to 28"):
        ask(window(2026, 5).start, window(2026, 4))
    declare(installed, days=7, time_zone=BERLIN)
    assert ask(window(2026, 5).start, window(2026, 4)) == run_of(window(2026, 5))
