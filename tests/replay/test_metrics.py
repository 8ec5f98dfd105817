"""The figures of a replay."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from spillway.replay.metrics import Figures, figures
from spillway.replay.steps import HOUR
from spillway.testing.replayed import RESULT, moments


def test_figures_are_of_the_jobs_submitted_and_the_gpu_hours_within_the_measured_span() -> None:
    found = figures(RESULT)
    assert (found.wait_p95_minutes, found.wait_p99_minutes) == pytest.approx((157.5, 175.5))
    assert found == Figures(
        policy="default",
        jobs=4,
        unstarted=1,
        unfinished=1,
        wait_mean_minutes=(0 + 30 + 0 + 180) / 4,
        wait_p50_minutes=15,
        wait_p95_minutes=found.wait_p95_minutes,
        wait_p99_minutes=found.wait_p99_minutes,
        response_mean_hours=(6 + 4 + 10) / 3,
        cloud_gpu_hours_paid=16 * 4 + 8,
        cloud_gpu_hours_used=8 * 3.5 + 4 * 4,
        cloud_idle=1 - 44 / 72,
        local_utilisation=(8 * 6 + 4 * 3.5) / 80,
        cloud_cost=Decimal("576.00"),
        local_cost=Decimal("200.00"),
        moves=1,
        flaps=1,
        interruptions=0,
        lost_gpu_hours=0,
    )


def test_what_is_before_or_after_the_measured_span_does_not_count() -> None:
    found = figures(replace(RESULT, measured=(2 * HOUR, 6 * HOUR)))
    assert (found.jobs, found.cloud_gpu_hours_paid, found.cloud_gpu_hours_used) == (1, 16 * 3 + 8, 8 * 3 + 4 * 4)
    assert (found.moves, found.flaps, found.wait_mean_minutes, found.local_utilisation) == (0, 0, 0, 1)


def test_a_rate_of_nothing_and_a_mean_of_no_job_are_not_told() -> None:
    found = figures(replace(RESULT, measured=(20 * HOUR, 20 * HOUR)))
    assert (found.jobs, found.wait_mean_minutes, found.wait_p95_minutes, found.response_mean_hours) == (0, *[None] * 3)
    assert (found.cloud_idle, found.local_utilisation, found.cloud_cost) == (None, None, Decimal("0.00"))


def test_gpus_wanted_are_those_of_jobs_that_run_or_wait() -> None:
    wanted = RESULT.wanted()
    assert wanted.held(moments(0, 1, 2, 5.5, 7, 9)).tolist() == [8, 16, 20, 12, 4, 8]
    assert RESULT.used(1).held(moments(1, 1.5, 2, 5.5, 7)).tolist() == [0, 8, 12, 4, 0]
