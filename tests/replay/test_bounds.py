"""Bounds of the cloud GPU-hours that any policy needs."""

from __future__ import annotations

import numpy as np
import pytest

from spillway.replay.bounds import fluid_bound, placement_bound
from spillway.replay.steps import HOUR

Jobs = list[tuple[float, float, int]]
LONG_FIRST: Jobs = [(0, 10, 4), (0, 1, 4), (2, 3, 4), (4, 5, 4), (6, 7, 4)]


def bounds(jobs: Jobs, local: int, until: float = 10, grid: float = 0.25) -> tuple[float, float | None]:
    starts, ends = (np.array([job[at] for job in jobs], dtype=np.float64) * HOUR for at in (0, 1))
    gpus = np.array([job[2] for job in jobs], dtype=np.int64)
    span = (0.0, until * HOUR)
    return (
        fluid_bound(starts=starts, ends=ends, gpus=gpus, local_gpus=local, measured=span),
        placement_bound(starts=starts, ends=ends, gpus=gpus, local_gpus=local, measured=span, grid_seconds=grid * HOUR),
    )


@pytest.mark.parametrize(
    ("jobs", "local", "fluid", "placed"),
    [
        (LONG_FIRST, 8, 0, 0),
        (LONG_FIRST, 4, 16, 16),
        ([(0, 4, 4), (3, 7, 4), (6, 10, 4)], 4, 8, 16),
        ([(0, 2, 8)], 5, 6, 6),
        ([(0, 2, 8)], 0, 16, 16),
        ([], 8, 0, 0),
    ],
    ids=["room for all", "the long one stays", "whoever stays", "a part of a job", "no local at all", "no job"],
)
def test_the_bounds_are_the_least_that_is_sent_away(jobs: Jobs, local: int, fluid: float, placed: float) -> None:
    assert bounds(jobs, local) == pytest.approx((fluid, placed))


def test_only_the_measured_span_counts() -> None:
    assert bounds([(0, 20, 4), (-5, 5, 4), (30, 40, 4)], 4) == pytest.approx((20, 20))


@pytest.mark.parametrize("seed", range(3))
def test_no_choice_of_whole_jobs_is_below_the_bounds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    begins = chance.integers(0, 20, 9)
    jobs = [
        (float(start), float(start + length), int(gpus))
        for start, length, gpus in zip(begins, chance.integers(1, 9, 9), chance.integers(1, 9, 9), strict=True)
    ]
    fluid, placed = bounds(jobs, 8, until=40)
    best = np.inf
    for choice in range(1 << len(jobs)):
        local = [job for at, job in enumerate(jobs) if not choice >> at & 1]
        if all(sum(gpus for start, end, gpus in local if start <= hour < end) <= 8 for hour in range(40)):
            away = sum(gpus * (end - start) for at, (start, end, gpus) in enumerate(jobs) if choice >> at & 1)
            best = min(best, away)
    assert placed is not None
    assert fluid <= placed + 1e-6 <= best + 1e-5
