"""Demand as a series of steps, from the jobs that wanted GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from spillway.errors import InsufficientHistory
from spillway.forecast.base import Floats, History, JobTable, seconds
from spillway.model import DemandSeries, JobRecord

HOUR = timedelta(hours=1)


def demand_series(jobs: JobTable, starts_at: datetime, ends_at: datetime, *, step: timedelta = HOUR) -> DemandSeries:
    """GPUs that jobs wanted, running and queued, the mean of each whole step of ``[starts_at, ends_at)``.

    Steps are so much time, not hours of a clock: a day in which a zone changes its clocks has 23 or 25 of an hour.
    """
    count = max(0, (ends_at - starts_at) // step)
    edges = np.asarray(seconds(starts_at) + step.total_seconds() * np.arange(count + 1), np.float64)
    means = np.diff(wanted_until(jobs, edges)) / step.total_seconds()
    return DemandSeries(starts_at=starts_at.astimezone(UTC), step=step, gpus=tuple(means.tolist()))


def of_jobs(records: Sequence[JobRecord], *, step: timedelta = HOUR, time_zone: str = "UTC") -> History:
    """The history of those jobs up to when the last one of them asked: what came after that nobody wrote down.

    Raises:
        InsufficientHistory: not one whole step lies between the first and the last one.
    """
    jobs = JobTable.of(records)
    if not len(jobs.submitted):
        raise InsufficientHistory(0, "as it has no jobs")
    ends_at = datetime.fromtimestamp(float(jobs.submitted[-1]), UTC).replace(minute=0, second=0, microsecond=0)
    count = int((seconds(ends_at) - jobs.since) // step.total_seconds())
    if count < 1:
        raise InsufficientHistory(0, f"as its jobs were asked for within less than {step}")
    return History.of(demand_series(jobs, ends_at - count * step, ends_at, step=step), records, time_zone=time_zone)


def wanted_until(jobs: JobTable, moments: Floats) -> Floats:
    """GPU-seconds that were wanted before each moment."""
    return _since(jobs.submitted, jobs.gpus, moments) - _since(jobs.ended, jobs.gpus, moments)


def wanted_at(jobs: JobTable, moments: Floats) -> Floats:
    """GPUs that were wanted at each moment: by all that had asked and not ended."""
    return asked_until(jobs.submitted, jobs.gpus, moments) - asked_until(jobs.ended, jobs.gpus, moments, side="right")


def asked_until(events: Floats, gpus: Floats, moments: Floats, *, side: str = "left") -> Floats:
    """GPUs of the events before each moment; with ``right`` also of those at it."""
    order = np.argsort(events, kind="stable")
    total = np.concatenate([[0.0], np.cumsum(gpus[order])])
    found: Floats = total[np.searchsorted(events[order], moments, side="right" if side == "right" else "left")]
    return found


def _since(events: Floats, gpus: Floats, moments: Floats) -> Floats:
    """GPU-seconds between the events and each moment, of the events before it."""
    happened = np.isfinite(events)
    order = np.argsort(events[happened], kind="stable")
    at, weight = events[happened][order], gpus[happened][order]
    count = np.searchsorted(at, moments)
    # Moments are large numbers: relative to the first one nothing is lost to rounding.
    first = moments[0] if len(moments) else 0.0
    total = np.concatenate([[0.0], np.cumsum(weight)])[count]
    moved = np.concatenate([[0.0], np.cumsum(weight * (at - first))])[count]
    since: Floats = total * (moments - first) - moved
    return since
