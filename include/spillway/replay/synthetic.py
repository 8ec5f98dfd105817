"""Made-up job histories with the statistics of measured ones: for tests, and where no history is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from spillway.model.demand import JobRecord
from spillway.windows import Iteration, windows_between

DAY_SECONDS, HOUR_SECONDS = 86400, 3600
MONTH_END = "month-end-"
"""How the names of the jobs of the overlay begin, which no measured history has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Jobs of one number of GPUs: their part of all jobs, the part of them that runs over a day, and the others.

    ``minutes`` is the median of those that end within the day.
    """

    part: float
    over_a_day: float
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The statistics of a history.

    Durations within a day are log-normal (``spread`` is the deviation of their logarithm) and not shorter than
    ``shortest_seconds``; those over a day are Pareto from one day on with exponent ``tail``, up to ``longest_days``.
    Arrivals are Poisson by the hour; the logarithm of their rate goes up and down (deviation ``unrest``, ``memory``
    from one hour to the next) and by ``daily_cycle`` with the time of day. ``batched`` of the jobs come in the very
    second of another one.
    """

    jobs_per_day: float
    sizes: Mapping[int, Size]
    spread: float
    shortest_seconds: float
    tail: float
    longest_days: float
    unrest: float
    memory: float
    daily_cycle: float
    batched: float


ITP_LIKE = Workload(
    jobs_per_day=1160,
    sizes={
        1: Size(part=0.8317, over_a_day=0.0098, minutes=163),
        2: Size(part=0.0214, over_a_day=0.0236, minutes=58),
        4: Size(part=0.0342, over_a_day=0.1286, minutes=114),
        8: Size(part=0.1011, over_a_day=0.1557, minutes=240),
        16: Size(part=0.0055, over_a_day=0.2283, minutes=93),
        32: Size(part=0.0051, over_a_day=0.3983, minutes=204),
        64: Size(part=0.0010, over_a_day=0.1972, minutes=263),
    },
    spread=1.1,
    shortest_seconds=600,
    tail=1.4,
    longest_days=18,
    unrest=0.88,
    memory=0.57,
    daily_cycle=0.2,
    batched=0.3,
)
"""Of a research cluster of about 1,200 GPUs: 3 % of the jobs run over a day and hold 63 % of the GPU-hours."""
PHILLY_LIKE = Workload(
    jobs_per_day=900,
    sizes={
        1: Size(part=0.9455, over_a_day=0.0144, minutes=23),
        2: Size(part=0.0180, over_a_day=0.1549, minutes=1),
        4: Size(part=0.0206, over_a_day=0.2802, minutes=93),
        8: Size(part=0.0140, over_a_day=0.5366, minutes=75),
        16: Size(part=0.0014, over_a_day=0.4203, minutes=31),
        32: Size(part=0.0005, over_a_day=0.0385, minutes=885),
    },
    spread=1.8,
    shortest_seconds=1,
    tail=1.02,
    longest_days=38,
    unrest=1.18,
    memory=0.5,
    daily_cycle=0.2,
    batched=0.28,
)
"""Of one of about 600 GPUs with short tries and very long runs: 3 % of the jobs hold 84 % of the GPU-hours."""


def made_up(
    workload: Workload,
    *,
    starts_at: datetime,
    days: int,
    seed: int,
    month_end: float = 1.0,
    iteration: Iteration = Iteration(),  # noqa: B008 - a frozen value
) -> tuple[JobRecord, ...]:
    """Jobs of so many days in the order of their submission, each started at once; the same for the same arguments.

    Args:
        month_end: in the windows of ``iteration``, so many times as many jobs arrive; those beyond the workload's own
            are named ``month-end-...``, and without them the history is the one of ``month_end=1``.
    """
    chance, overlay = (np.random.default_rng((seed, stream)) for stream in (0, 1))
    rate = _hourly_rate(workload, days, chance)
    jobs = _jobs(workload, chance.poisson(rate), starts_at, "job-", chance)
    if month_end > 1:
        windows = windows_between(starts_at, starts_at + timedelta(days=days), iteration)
        hours = (starts_at + timedelta(hours=hour) for hour in range(rate.size))
        inside = np.array([any(window.starts_at <= hour < window.ends_at for window in windows) for hour in hours])
        more = overlay.poisson(np.where(inside, rate * (month_end - 1), 0.0))
        jobs += _jobs(workload, more, starts_at, MONTH_END, overlay)
    return tuple(sorted(jobs, key=lambda job: job.submitted_at))


def _hourly_rate(workload: Workload, days: int, chance: np.random.Generator) -> npt.NDArray[np.float64]:
    """Jobs that are to be expected in each hour, shape (days * 24,)."""
    shocks = chance.normal(0.0, workload.unrest * np.sqrt(1 - workload.memory**2), days * 24)
    level = chance.normal(0.0, workload.unrest)
    levels = np.empty(days * 24)
    for hour, shock in enumerate(shocks):
        level = workload.memory * level + shock
        levels[hour] = level
    cycle = 1 + workload.daily_cycle * np.sin(2 * np.pi * np.arange(days * 24) / 24)
    return np.asarray(workload.jobs_per_day / 24 * cycle * np.exp(levels - workload.unrest**2 / 2))


def _jobs(
    workload: Workload, per_hour: npt.NDArray[np.int64], starts_at: datetime, name: str, chance: np.random.Generator
) -> list[JobRecord]:
    count = int(per_hour.sum())
    hour = np.repeat(np.arange(per_hour.size), per_hour)
    second = np.floor((hour + chance.random(count)) * HOUR_SECONDS)
    together = (chance.random(count) < workload.batched) & (np.diff(hour, prepend=-1) == 0)
    second = second[np.maximum.accumulate(np.where(together, 0, np.arange(count)))]
    sizes = list(workload.sizes.items())
    parts = np.array([size.part for _, size in sizes])
    kind = chance.choice(len(sizes), size=count, p=parts / parts.sum())
    long = chance.random(count) < np.array([size.over_a_day for _, size in sizes])[kind]
    median = np.array([size.minutes for _, size in sizes])[kind] * 60
    short_seconds = np.clip(
        median * np.exp(chance.normal(0.0, workload.spread, count)), workload.shortest_seconds, DAY_SECONDS
    )
    long_days = np.minimum((1 - chance.random(count)) ** (-1 / workload.tail), workload.longest_days)
    seconds = np.rint(np.where(long, long_days * DAY_SECONDS, short_seconds))
    order = np.argsort(second, kind="stable")
    gpus = np.array([gpus for gpus, _ in sizes])[kind]
    return [
        JobRecord(
            job=f"{name}{number:06d}",
            submitted_at=(at := starts_at + timedelta(seconds=second[row])),
            gpus=int(gpus[row]),
            started_at=at,
            ended_at=at + timedelta(seconds=seconds[row]),
        )
        for number, row in enumerate(order)
    ]
