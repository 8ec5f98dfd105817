"""When the monthly iteration runs."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pendulum
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable

from spillway.config import configuration_directory, load_iteration
from spillway.months import Window
from spillway.windows import Iteration, begun_window, coming_window, next_window


def now() -> datetime:
    """The moment, in UTC."""
    return datetime.now(UTC)


def declared_iteration() -> Iteration:
    """What ``policy.yaml`` says; the scaler reads it there, too."""
    return load_iteration(configuration_directory(os.environ))


class LastWeekOfMonth(Timetable):
    """One run a month, at the start of the window that ``iteration`` of ``policy.yaml`` declares, its data interval.

    The next window is the first one after that of the last run, however often and whenever Airflow asks. The clock
    counts only without catch-up, and then only to leave out windows that have ended: the one under way still runs.
    A window begins at the end of the last run's or later, so that another declaration runs no month twice.

    The file is read whenever Airflow asks and never while it reads a DAG file, so a change needs no restart. A mistake
    in it is in the log of whoever asked; no run is made until it is mended.
    """

    description = "At the start of the last days of each month, as policy.yaml declares them"

    @property
    def summary(self) -> str:
        """What the list of DAGs shows."""
        return "last week of month"

    def infer_manual_data_interval(self, *, run_after: pendulum.DateTime) -> DataInterval:
        """A run by hand is about the window under way, else the last one."""
        return _interval(begun_window(run_after, declared_iteration()))

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        last = None if last_automated_data_interval is None else last_automated_data_interval.end
        bounds = [bound for bound in (last, restriction.earliest) if bound is not None]
        if not bounds:
            return None
        iteration = declared_iteration()
        window = next_window(max(bounds), iteration)
        if not restriction.catchup:
            window = max(window, coming_window(now(), iteration), key=lambda either: either.starts_at)
        if restriction.latest is not None and window.starts_at > restriction.latest:
            return None
        interval = _interval(window)
        return DagRunInfo(run_after=interval.start, data_interval=interval)


def _interval(window: Window) -> DataInterval:
    return DataInterval(start=pendulum.instance(window.starts_at), end=pendulum.instance(window.ends_at))
