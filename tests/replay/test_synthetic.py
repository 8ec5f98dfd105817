"""The made-up histories: the same for the same seed, with the statistics of the measured ones."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from spillway.model import Priority
from spillway.model.demand import JobRecord
from spillway.replay.assigned import PRIORITY_SHARES, Shares, assigned
from spillway.replay.steps import HOUR, held_together
from spillway.replay.synthetic import ITP_LIKE, MONTH_END, PHILLY_LIKE, Workload, made_up

START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("workload", "held_by_long", "mean_gpus"),
    [(ITP_LIKE, (0.55, 0.72), (850, 1600)), (PHILLY_LIKE, (0.78, 0.92), (350, 900))],
    ids=["itp", "philly"],
)
def test_few_long_jobs_hold_most_gpu_hours_and_the_hour_of_day_tells_little(
    workload: Workload, held_by_long: tuple[float, float], mean_gpus: tuple[float, float]
) -> None:
    jobs = made_up(workload, starts_at=START, days=120, seed=1)
    starts = np.array([(job.submitted_at - START).total_seconds() for job in jobs])
    seconds = np.array([job.duration.total_seconds() for job in jobs if job.duration])
    gpus = np.array([job.gpus for job in jobs])
    long = seconds > 86400
    assert 0.025 < long.mean() < 0.04
    assert held_by_long[0] < (gpus * seconds)[long].sum() / (gpus * seconds).sum() < held_by_long[1]

    demand = held_together(starts, starts + seconds, gpus).per_bucket(np.arange(30 * 24, 120 * 24) * HOUR)
    assert mean_gpus[0] < demand.mean() < mean_gpus[1]
    hour = np.arange(demand.size) % 24
    by_hour = np.array([demand[hour == at].mean() for at in range(24)])[hour]
    assert by_hour.var() / demand.var() < 0.06


def test_the_same_seed_makes_the_same_history_in_order_of_submission() -> None:
    once, again, other = (made_up(ITP_LIKE, starts_at=START, days=3, seed=seed) for seed in (7, 7, 8))
    assert once == again != other
    assert list(once) == sorted(once, key=lambda job: job.submitted_at)
    assert len({job.job for job in once}) == len(once) > 100
    assert all(START <= job.submitted_at < START + 3 * DAY and job.duration for job in once)


def test_the_month_end_adds_named_jobs_in_the_last_week_and_changes_no_other() -> None:
    plain = made_up(ITP_LIKE, starts_at=START, days=31, seed=3)
    overlaid = made_up(ITP_LIKE, starts_at=START, days=31, seed=3, month_end=1.5)
    added = [job for job in overlaid if job.job.startswith(MONTH_END)]
    assert tuple(job for job in overlaid if not job.job.startswith(MONTH_END)) == plain
    last_week = datetime(2026, 3, 25, tzinfo=UTC)
    assert min(job.submitted_at for job in added) >= last_week
    assert len(added) == pytest.approx(0.5 * sum(job.submitted_at >= last_week for job in plain), rel=0.15)


def bare(count: int) -> tuple[JobRecord, ...]:
    return tuple(JobRecord(job=f"j{number}", submitted_at=START, gpus=1) for number in range(count))


def test_priorities_are_assigned_by_their_shares_where_a_trace_tells_none() -> None:
    jobs = assigned(bare(4000), Shares(), seed=1)
    counts = Counter(job.priority for job in jobs)
    assert {priority: pytest.approx(share, abs=0.03) for priority, share in PRIORITY_SHARES.items()} == {
        priority: counts[priority] / 4000 for priority in Priority
    }
    assert {(job.department, job.gpu_type) for job in jobs} == {(None, None)}


def test_what_a_job_gets_depends_on_its_name_and_the_seed_alone() -> None:
    shares = Shares(departments={"vision": 2, "speech": 1}, gpu_types={"a100": 1})
    jobs = assigned(bare(50), shares, seed=1)
    assert assigned(reversed(bare(50)[10:20]), shares, seed=1) == tuple(reversed(jobs[10:20]))
    assert assigned(bare(50), shares, seed=2) != jobs
    assert {job.department for job in jobs} == {"vision", "speech"}
    assert {job.gpu_type for job in jobs} == {"a100"}


def test_what_a_trace_tells_stays() -> None:
    told = JobRecord(job="a", submitted_at=START, gpus=1, priority=Priority.RESEARCH, department="nlp", gpu_type="h100")
    shares = Shares(departments={"vision": 1}, gpu_types={"a100": 1})
    assert assigned([told], shares, seed=4) == (told,)
