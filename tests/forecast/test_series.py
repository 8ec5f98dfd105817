"""Demand as a series, and jobs as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from spillway.forecast.base import History, JobTable, seconds
from spillway.forecast.series import HOUR, demand_series, wanted_at
from spillway.model import JobRecord
from spillway.testing.histories import MONDAY, clocked, made_up_jobs, peak_at_nine, series

BERLIN = ZoneInfo("Europe/Berlin")


def job(begins: float, ends: float | None, gpus: int = 4, started: float | None = None) -> JobRecord:
    """Hours after Monday."""
    return JobRecord(
        job=f"{begins}-{ends}",
        submitted_at=MONDAY + begins * HOUR,
        started_at=None if started is None else MONDAY + started * HOUR,
        ended_at=None if ends is None else MONDAY + ends * HOUR,
        gpus=gpus,
    )


def test_a_step_is_the_mean_of_what_running_and_queued_jobs_want_in_it() -> None:
    jobs = JobTable.of([job(0.5, 2.25), job(1, None, gpus=1), job(1.5, 1.5), job(-5, 0.25, gpus=8)])
    found = demand_series(jobs, MONDAY, MONDAY + 4.5 * HOUR)
    assert found == series(4.0, 5.0, 2.0, 1.0)


def test_what_is_wanted_at_a_moment_is_by_jobs_that_asked_before_it_and_have_not_ended() -> None:
    jobs = JobTable.of([job(1, 3), job(2, None, gpus=1)])
    moments = seconds(MONDAY) + 3600 * np.array([1.0, 1.5, 2.5, 3.0])
    assert wanted_at(jobs, moments).tolist() == [0.0, 4.0, 5.0, 1.0]


def test_a_past_moment_knows_no_later_job_and_no_later_end() -> None:
    jobs = JobTable.of([job(0, 1), job(0, 9), job(5, 6)]).known_at(seconds(MONDAY + 4 * HOUR))
    assert jobs.ended.tolist() == [seconds(MONDAY + HOUR), np.inf]


def test_a_job_that_ended_before_it_asked_or_asks_for_nothing_is_left_out() -> None:
    assert JobTable.of([job(2, 1), job(1, 2, gpus=0), job(1, 2)]).gpus.tolist() == [4.0]


def test_departments_with_few_jobs_share_their_statistics() -> None:
    records = [
        JobRecord(job=f"{d}-{n}", submitted_at=MONDAY, gpus=1, department=f"d{d}") for d in range(30) for n in range(d)
    ]
    assert len(JobTable.of(records).groups) == 21


@pytest.mark.parametrize(
    ("first", "hours"),
    [(datetime(2026, 3, 26, tzinfo=BERLIN), 167), (datetime(2026, 10, 22, tzinfo=BERLIN), 169)],
    ids=["an hour is left out", "an hour comes twice"],
)
def test_seven_local_days_over_a_clock_change_have_an_hour_less_or_more_and_lose_none(
    first: datetime, hours: int
) -> None:
    known = clocked(first, 7, peak_at_nine)
    moments = [known.starts_at + number * known.step for number in range(len(known.gpus))]
    assert len(moments) == len(set(moments)) == hours
    assert all(later - earlier == HOUR and later.tzinfo is UTC for earlier, later in pairwise(moments))
    history = History.of(known, time_zone="Europe/Berlin")
    peaks = sum(peak_at_nine(moment.astimezone(BERLIN)) for moment in moments)
    assert (history.present, history.coverage, history.gpus.sum()) == (hours, 1.0, peaks)
    begins, ends = first.astimezone(UTC), (first + timedelta(days=7)).astimezone(UTC)
    jobs = JobTable.of([JobRecord(job="all", submitted_at=begins, ended_at=ends, gpus=3)])
    assert demand_series(jobs, begins, ends).gpus == (3.0,) * hours


def test_the_series_of_many_jobs_sums_to_the_gpu_hours_that_they_took() -> None:
    jobs = made_up_jobs(3)
    found = demand_series(JobTable.of(jobs), MONDAY, MONDAY + timedelta(days=60))
    taken = sum((job.ended_at - job.submitted_at) / HOUR * job.gpus for job in jobs if job.ended_at)
    assert sum(gpus or 0.0 for gpus in found.gpus) == pytest.approx(taken)
