"""Histories of demand for tests: days of a zone with a peak, and jobs that come and go by chance with a seed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

from spillway.forecast.base import History, JobTable
from spillway.forecast.series import HOUR, demand_series
from spillway.model import DemandSeries, JobRecord

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def series(*gpus: float | None, starts_at: datetime = MONDAY, step: timedelta = HOUR) -> DemandSeries:
    return DemandSeries(starts_at=starts_at, step=step, gpus=gpus)


def clocked(
    first: datetime, days: int, wanted: Callable[[datetime], float | None], *, step: timedelta = HOUR
) -> DemandSeries:
    """Whole days of the zone of ``first``; ``wanted`` gives GPUs by the local time of each step."""
    zone = first.tzinfo
    assert isinstance(zone, ZoneInfo)
    begins, ends = first.astimezone(UTC), (first + timedelta(days=days)).astimezone(UTC)
    moments = [begins + number * step for number in range((ends - begins) // step)]
    assert all(later - earlier == step for earlier, later in pairwise(moments))
    return series(*(wanted(moment.astimezone(zone)) for moment in moments), starts_at=begins, step=step)


def peak_at_nine(local: datetime) -> float:
    return 90.0 if local.hour == 9 else 10.0


def made_up_jobs(days: int, *, seed: int = 1, per_hour: float = 4.0, mean_hours: float = 6.0) -> list[JobRecord]:
    """Jobs of 1 to 8 GPUs that come evenly by chance; how long they go on has no memory."""
    chance = Random(seed)
    found: list[JobRecord] = []
    at = MONDAY
    while at < MONDAY + timedelta(days=days):
        at += timedelta(hours=chance.expovariate(per_hour))
        lasting = timedelta(hours=chance.expovariate(1 / mean_hours))
        found.append(
            JobRecord(
                job=f"j{len(found)}",
                submitted_at=at,
                ended_at=at + lasting,
                gpus=chance.choice((1, 1, 2, 8)),
                department=chance.choice(("vision", "speech")),
            )
        )
    return found


def made_up_history(days: int, *, seed: int = 1) -> History:
    jobs = made_up_jobs(days, seed=seed)
    return History.of(demand_series(JobTable.of(jobs), MONDAY, MONDAY + timedelta(days=days)), jobs)
