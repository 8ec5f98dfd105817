"""A replay foresees by the live forecaster, from what has happened in it so far, and orders nodes before jobs come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from spillway.forecast.base import History, JobTable
from spillway.forecast.series import demand_series
from spillway.model import Billing, Forecast, JobRecord, PlacementPolicy, QuotaShare
from spillway.replay.engine import Policy, replay
from spillway.replay.foreseeing import Foreseeing
from spillway.replay.jobs import jobs_of
from spillway.replay.metrics import ReplayResult
from spillway.replay.world import Conditions
from spillway.scaling.ahead import EVERYWHERE
from spillway.scaling.foresight import foreseen_by, learned
from spillway.scaling.rules import ForecastRule, QueueRule, ScalingRules
from spillway.testing.builders import cloud_cluster, cloud_pool, node_pool, onprem_cluster
from spillway.testing.histories import MONDAY, made_up_jobs

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
RULE = ForecastRule(quantile=0.9, ahead=15 * MINUTE)
REACTIVE = ScalingRules(preset="event", reactive=QueueRule(), idle_release=10 * MINUTE)
AHEAD = replace(REACTIVE, preset="ahead", forecast=RULE)
PLACEMENT = PlacementPolicy(
    weights={"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")},
    quotas={"all": QuotaShare(onprem=Decimal(1), cloud=Decimal(1))},
)


def started(jobs: list[JobRecord]) -> list[JobRecord]:
    return [replace(job, started_at=job.submitted_at) for job in jobs]


def as_live(jobs: list[JobRecord], now: datetime) -> History:
    """What the live scaler has of those jobs then, where each began when it was asked for."""
    known = [job for job in jobs if job.submitted_at < now]
    since = known[0].submitted_at.replace(minute=0, second=0, microsecond=0) + HOUR
    return History.of(demand_series(JobTable.of(known), since, now), known)


def mornings(days: int) -> list[JobRecord]:
    """Every day at nine four jobs of a whole node that take two hours, and one that takes all day."""
    return [
        JobRecord(
            job=f"{day}-{at}",
            submitted_at=MONDAY + day * DAY + (9 * HOUR if at else timedelta()),
            gpus=8,
            started_at=MONDAY + day * DAY + (9 * HOUR if at else timedelta()),
            ended_at=MONDAY + day * DAY + (11 * HOUR if at else 23 * HOUR),
        )
        for day in range(days)
        for at in range(5)
    ]


def run(jobs: list[JobRecord], rules: ScalingRules) -> ReplayResult:
    bought = cloud_pool(max_nodes=10, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)})
    clusters = (onprem_cluster(pools=(node_pool(max_nodes=2),)), cloud_cluster(pools=(bought,)))
    policy = Policy(name=rules.preset, placement=PLACEMENT, scaling=rules)
    return replay("made up", jobs, clusters, policy, conditions=Conditions(boot=(6 * MINUTE, 6 * MINUTE)))


def each_hour(records: list[JobRecord], hours: int, *, time_zone: str) -> dict[int, Mapping[tuple[str, str], Forecast]]:
    """What is foreseen at each of them, where every job has a place at once."""
    foreseeing = Foreseeing(RULE, records, time_zone=time_zone)
    jobs, running, found = iter(jobs_of(records, PLACEMENT, Conditions())), [], {}
    coming = next(jobs)
    for hour in range(1, hours):
        now = hour * 3600.0
        while coming.asked_at < now:
            coming.started_at = coming.asked_at
            foreseeing.asked(coming)
            running.append(coming)
            coming = next(jobs)
        for job in running:
            job.ended_at = job.asked_at + job.works if job.asked_at + job.works <= now else None
        found[hour] = foreseeing.at(now)
    return found


def waits(result: ReplayResult, day: int) -> list[float]:
    """Minutes that the jobs of that morning waited."""
    asked = (MONDAY + day * DAY + 9 * HOUR - result.starts_at).total_seconds()
    return sorted(((result.started - result.submitted) / 60)[result.submitted == asked].tolist())


def test_what_is_foreseen_is_what_the_live_scaler_foresees_of_the_jobs_so_far() -> None:
    records = started(made_up_jobs(12))
    found = each_hour(records, 11 * 24, time_zone="UTC")
    epoch = records[0].submitted_at
    for hour in (24, 25, 26, 10 * 24 + 3):
        now = (epoch + hour * HOUR).replace(minute=0, second=0, microsecond=0)
        assert found[hour].keys() == ({EVERYWHERE} if hour > 24 else set())
        if hour > 24:
            newest = as_live(records, now)
            day = timedelta(days=(newest.present - 24) // 24)
            known = learned(RULE, as_live(records, as_live(records, now).at(24) + day))
            assert found[hour][EVERYWHERE] == foreseen_by(RULE, newest, known)


def test_nodes_come_before_the_jobs_of_every_morning_once_mornings_are_known() -> None:
    jobs = mornings(11)
    reacted, foreseen = run(jobs, REACTIVE), run(jobs, AHEAD)
    # Of five jobs that want a node two find one on-premises; the others wait for the tick and the boot.
    assert waits(reacted, 10) == [0.0, 6.5, 6.5, 6.5]
    assert waits(foreseen, 10) == [0.0, 0.0, 0.0, 0.0]


def test_the_time_of_day_is_that_of_the_clocks_by_which_people_work() -> None:
    """The clocks of Berlin were put forward the day before, and its people come at nine as ever."""
    first = datetime(2026, 3, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    records = [
        JobRecord(job=f"{day}-{at}", submitted_at=asked, gpus=8, started_at=asked, ended_at=asked + lasting)
        for day in range(22)
        for at in range(5)
        for asked, lasting in [
            ((first + day * DAY + (9 * HOUR if at else timedelta())).astimezone(UTC), 2 * HOUR if at else 23 * HOUR)
        ]
    ]
    nine = ((first + 21 * DAY + 9 * HOUR).astimezone(UTC) - first.astimezone(UTC)) // HOUR
    assert each_hour(records, nine + 1, time_zone="Europe/Berlin")[nine][EVERYWHERE].gpus[0][-1] == 40


def test_nothing_is_foreseen_on_the_first_day_and_nothing_that_comes_later_changes_what_was_before() -> None:
    jobs = mornings(11)
    whole, part = run(jobs, AHEAD), run(jobs[: 5 * 10], AHEAD)
    assert waits(whole, 0) == [0.0, 6.5, 6.5, 6.5]
    until = (MONDAY + 9 * DAY + 12 * HOUR - whole.starts_at).total_seconds()
    for one in (whole, part):
        assert one.orders.at.size
    orders = [list(zip(one.orders.at, one.orders.nodes, strict=True)) for one in (whole, part)]
    assert [order for order in orders[0] if order[0] < until] == [order for order in orders[1] if order[0] < until]


@pytest.mark.parametrize(
    ("ahead", "now", "then"),
    [
        (15 * MINUTE, 0.0, 45.0), (15 * MINUTE, 45.0, 60.0), (15 * MINUTE, 60.0, 105.0), (2 * HOUR, 0.0, 60.0),
        (90 * MINUTE, 10.0, 30.0),
    ],
)  # fmt: skip
def test_something_else_is_foreseen_with_each_hour_and_when_the_rule_reaches_the_next(
    ahead: timedelta, now: float, then: float
) -> None:
    foreseeing = Foreseeing(replace(RULE, ahead=ahead), mornings(1), time_zone="UTC")
    assert foreseeing.changes_after(now * 60) == then * 60


def test_a_job_that_no_pool_ever_takes_is_not_foreseen() -> None:
    jobs = mornings(6)
    hopeless = replace(jobs[0], job="hopeless", gpus=8 * 500)
    assert np.array_equal(run(jobs, AHEAD).orders.at, run([hopeless, *jobs], AHEAD).orders.at)
