"""What the scaler foresees from sampled hours, and when it foresees nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path

import pytest

from spillway.config import Configuration, load
from spillway.forecast.base import JobTable
from spillway.forecast.models import OF_JOBS
from spillway.forecast.series import demand_series
from spillway.ledger import Ledger, open_ledger
from spillway.ledger.sample_rows import write_sample
from spillway.model import Cluster, JobRecord, PoolSample, Sample
from spillway.runs.scaling_forecasts import forecasts
from spillway.runs.services import Services, Site
from spillway.sandbox.settings import INCLUDE
from spillway.scaling.ahead import EVERYWHERE
from spillway.scaling.presets import DEFAULT, S2
from spillway.scaling.rules import ForecastRule
from spillway.testing.histories import MONDAY, made_up_jobs
from spillway.testing.ledger_files import new_ledger

AHEAD = replace(DEFAULT, forecast=ForecastRule(quantile=0.9, ahead=timedelta(minutes=15)))
HOUR = timedelta(hours=1)
NOW = datetime(2026, 3, 20, 9, 15, tzinfo=UTC)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(new_ledger(tmp_path / "ledger.db"))


@pytest.fixture
def services(ledger: Ledger) -> Services:
    declared: Configuration = replace(load(INCLUDE / "config"), scaling=AHEAD)
    return Services(configuration=declared, open_ledger=lambda: ledger, open_site=unasked, image_uses=tuple)


def unasked(cluster: Cluster) -> Site:
    raise AssertionError("no cluster is asked for a forecast")


def measured(ledger: Ledger, since: datetime, until: datetime, *, gpus: Iterable[float | None] = repeat(40.0)) -> None:
    """So many GPUs in use in each whole hour."""
    at, each = since, iter(gpus)
    with ledger.database.writing() as connection:
        while at + HOUR <= until:
            used = next(each) or 0.0
            pool = PoolSample(cluster="onprem", pool="a100", gpus=64.0, used_gpus=used, nodes=8.0, idle_nodes=3.0)
            write_sample(connection, Sample(at=at, pools=(replace(pool, taken=120),), step=HOUR, taken=120))
            at += HOUR


def test_what_was_always_so_is_foreseen_and_the_model_says_why_it_was_chosen(
    ledger: Ledger, services: Services
) -> None:
    measured(ledger, FIRST, NOW)
    forecast = forecasts(services, NOW)[EVERYWHERE]
    assert (forecast.made_at, forecast.step, forecast.quantiles) == (NOW.replace(minute=0), HOUR, (0.5, 0.9))
    assert forecast.gpus == ((40, 40), (40, 40))
    assert forecast.reason


def test_rules_without_a_forecast_ask_for_none(ledger: Ledger, services: Services) -> None:
    measured(ledger, FIRST, NOW)
    configuration = replace(services.configuration, scaling=S2)
    assert forecasts(replace(services, configuration=configuration), NOW) == {}


def test_of_less_than_a_day_nothing_is_foreseen(ledger: Ledger, services: Services) -> None:
    assert forecasts(services, NOW) == {}
    measured(ledger, NOW.replace(minute=0) - 23 * HOUR, NOW)
    assert forecasts(services, NOW) == {}


def test_nothing_is_foreseen_while_the_last_hour_was_not_measured(ledger: Ledger, services: Services) -> None:
    measured(ledger, FIRST, NOW - HOUR)
    assert forecasts(services, NOW) == {}
    assert forecasts(services, NOW - HOUR) != {}


def test_the_log_of_the_scheduler_before_counts_for_the_hours_before_the_first_measured_one(
    ledger: Ledger, services: Services
) -> None:
    measured(ledger, NOW.replace(minute=0) - 3 * HOUR, NOW)
    assert forecasts(services, NOW) == {}
    at = [NOW.replace(minute=0) - hours * HOUR for hours in range(72, 1, -1)]
    jobs = [JobRecord(job=f"{at}", submitted_at=at, gpus=40, started_at=at, ended_at=at + HOUR) for at in at]
    ledger.import_jobs("slurm", jobs)
    assert forecasts(services, NOW)[EVERYWHERE].gpus == ((40, 40), (40, 40))


def test_the_jobs_behind_the_hours_take_part_as_they_were_known_then(ledger: Ledger, services: Services) -> None:
    jobs = made_up_jobs(20)
    measured(ledger, MONDAY, NOW, gpus=demand_series(JobTable.of(jobs), MONDAY, NOW).gpus)
    ledger.import_jobs("slurm", [job for job in jobs if job.submitted_at < NOW])
    forecast = forecasts(services, NOW)[EVERYWHERE]
    assert forecast.model in OF_JOBS
    ledger.import_jobs("slurm", [job for job in jobs if job.submitted_at >= NOW])
    assert forecasts(services, NOW)[EVERYWHERE] == forecast
