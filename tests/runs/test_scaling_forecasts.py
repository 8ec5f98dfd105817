"""What the scaler foresees from sampled hours, and when it foresees nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from spillway.config import Configuration, load
from spillway.forecast.base import JobTable
from spillway.forecast.models import OF_JOBS
from spillway.forecast.series import demand_series
from spillway.ledger import Ledger, open_ledger
from spillway.ledger.sample_rows import write_sample
from spillway.model import JobRecord, PoolSample, Sample, Source
from spillway.runs.scaling import look, scale
from spillway.runs.scaling_forecasts import Foresight, foresee
from spillway.sandbox import drills
from spillway.sandbox.settings import INCLUDE
from spillway.scaling.ahead import EVERYWHERE
from spillway.scaling.presets import DEFAULT, S2
from spillway.scaling.rules import ForecastRule
from spillway.testing.histories import MONDAY, made_up_jobs
from spillway.testing.ledger_files import new_ledger
from spillway.testing.sandbox_server import Installation

AHEAD = replace(DEFAULT, forecast=ForecastRule(quantile=0.9, ahead=timedelta(minutes=15)))
HOUR = timedelta(hours=1)
NOW = datetime(2026, 3, 20, 9, 15, tzinfo=UTC)
FIRST = datetime(2026, 3, 1, tzinfo=UTC)
COUNTS, BASELINES = ("current count", "last step"), ("two-week rule", "three-month rule")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(new_ledger(tmp_path / "ledger.db"))


@pytest.fixture
def declared() -> Configuration:
    return replace(load(INCLUDE / "config"), scaling=AHEAD)


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
    ledger: Ledger, declared: Configuration
) -> None:
    measured(ledger, FIRST, NOW)
    forecast = foresee(ledger, declared, NOW).forecasts[EVERYWHERE]
    assert (forecast.made_at, forecast.step, forecast.quantiles) == (NOW.replace(minute=0), HOUR, (0.5, 0.9))
    assert forecast.gpus == ((40, 40), (40, 40))
    assert foresee(ledger, declared, NOW).told == (
        f"foreseen until 09:30 UTC: 40 GPUs, with a probability of 0.9 no more than 40, by {forecast.model} "
        f"({forecast.reason}); 100% of the hours were measured"
    )
    assert forecast.reason.startswith(f"2 h ahead: {forecast.model}")


def test_a_quantile_below_the_median_is_that_quantile(ledger: Ledger, declared: Configuration) -> None:
    rule = ForecastRule(quantile=0.1, ahead=timedelta(minutes=15))
    measured(ledger, FIRST, NOW, gpus=np.random.default_rng(1).uniform(0, 40, 24 * 20).tolist())
    low = replace(declared, scaling=replace(AHEAD, forecast=rule))
    forecast, usual = (foresee(ledger, which, NOW).forecasts[EVERYWHERE] for which in (low, declared))
    assert (forecast.quantiles, usual.quantiles) == ((0.1, 0.5), (0.5, 0.9))
    assert forecast.gpus[0][0] < usual.gpus[0][0] == forecast.gpus[0][1]


def test_rules_without_a_forecast_ask_for_none(ledger: Ledger, declared: Configuration) -> None:
    measured(ledger, FIRST, NOW)
    assert foresee(ledger, replace(declared, scaling=S2), NOW) == Foresight()


def test_of_less_than_a_day_nothing_is_foreseen(ledger: Ledger, declared: Configuration) -> None:
    nothing = "nothing is foreseen: demand is known for {} steps of 1:00:00, which is less than a day"
    assert foresee(ledger, declared, NOW) == Foresight(told=nothing.format(0))
    measured(ledger, NOW.replace(minute=0) - 23 * HOUR, NOW)
    assert foresee(ledger, declared, NOW) == Foresight(told=nothing.format(23))


def test_nothing_is_foreseen_while_the_last_hour_was_not_measured(ledger: Ledger, declared: Configuration) -> None:
    measured(ledger, FIRST, NOW - HOUR)
    assert foresee(ledger, declared, NOW) == Foresight(
        told="nothing is foreseen: the last step, until 09:00 UTC, was not measured"
    )
    assert foresee(ledger, declared, NOW - HOUR).forecasts


def test_the_log_of_the_scheduler_before_counts_for_the_hours_before_the_first_measured_one(
    ledger: Ledger, declared: Configuration
) -> None:
    measured(ledger, NOW.replace(minute=0) - 3 * HOUR, NOW)
    assert foresee(ledger, declared, NOW).forecasts == {}
    at = [NOW.replace(minute=0) - hours * HOUR for hours in range(72, 1, -1)]
    jobs = [JobRecord(job=f"{at}", submitted_at=at, gpus=40, started_at=at, ended_at=at + HOUR) for at in at]
    ledger.import_jobs("slurm", jobs)
    assert foresee(ledger, declared, NOW).forecasts[EVERYWHERE].gpus == ((40, 40), (40, 40))


def test_the_jobs_behind_the_hours_take_part_as_they_were_known_then(ledger: Ledger, declared: Configuration) -> None:
    jobs = made_up_jobs(20)
    measured(ledger, MONDAY, NOW, gpus=demand_series(JobTable.of(jobs), MONDAY, NOW).gpus)
    ledger.import_jobs("slurm", [job for job in jobs if job.submitted_at < NOW])
    forecast = foresee(ledger, declared, NOW).forecasts[EVERYWHERE]
    assert forecast.model in OF_JOBS
    ledger.import_jobs("slurm", [job for job in jobs if job.submitted_at >= NOW])
    assert foresee(ledger, declared, NOW).forecasts[EVERYWHERE] == forecast


def calm_then_swinging(since: datetime, turned: datetime, until: datetime) -> list[float]:
    """Hours in which little changes from one to the next, then some of which each has its own by the time of day."""
    every = [since + hour * HOUR for hour in range(int((until - since) / HOUR))]
    calm = (10 + 2 * np.sin((at - since) / (50 * HOUR)) for at in every if at < turned)
    return [*map(float, calm), *(2 + 0.8 * (at.hour * 7 % 24) for at in every if at >= turned)]


def test_while_the_models_have_lately_been_worse_than_a_rule_the_rule_is_believed_and_both_losses_are_told(
    ledger: Ledger, declared: Configuration
) -> None:
    turned = NOW.replace(minute=0) - timedelta(days=14)
    since = turned - timedelta(days=28)
    measured(ledger, since, NOW, gpus=calm_then_swinging(since, turned, NOW))
    before = foresee(ledger, declared, turned).forecasts[EVERYWHERE]
    assert before.model in COUNTS
    fallen_back = foresee(ledger, declared, NOW).forecasts[EVERYWHERE]
    assert fallen_back.model in BASELINES
    assert re.fullmatch(
        rf"2 h ahead: ({'|'.join(COUNTS)}) lost \d\.\d\d GPUs in the backtest, "
        rf"{fallen_back.model} \d\.\d\d, which is clearly less",
        fallen_back.reason,
    )


def test_nodes_come_by_the_rule_that_was_fallen_back_to_and_plan_log_and_audit_say_so(
    installation: Installation,
) -> None:
    at = (datetime.now(UTC) + timedelta(days=1)).replace(hour=17, minute=15, second=0, microsecond=0)
    drills.misbehave(installation.sandbox, boot=timedelta(hours=1))
    usual = installation.services()
    ahead = replace(usual.configuration, scaling=AHEAD)
    services = replace(usual, configuration=ahead, clock=lambda: at, actor="a test")
    turned = at.replace(minute=0) - timedelta(days=14)
    since = turned - timedelta(days=28)
    measured(services.ledger, since, at, gpus=calm_then_swinging(since, turned, at))
    own = PoolSample(cluster="onprem", pool="a100", gpus=10, used_gpus=2, nodes=2, idle_nodes=0)
    services.ledger.record_sample(Sample(at=at, pools=(own,)))

    found, said = look(services), list[str]()
    scale(services, said.append)
    (change,) = services.ledger.scaling_changes()
    (wish,) = (wish for wish in change.target.contributions if wish.source is Source.FORECAST)
    assert (change.target.nodes, found.plan[0].nodes) == (wish.nodes, wish.nodes)
    reason = re.fullmatch(
        r"(2\d) GPUs, of which 10 on-premises and 0 in other pools, by the quantile 0.9 of the next 15 min "
        rf"\(({'|'.join(BASELINES)}); 2 h ahead: .* lost .*, which is clearly less\)",
        wish.reason,
    )
    assert reason, wish.reason
    assert wish.nodes == -(-(int(reason[1]) - 10) // 4), "each node has 4 GPUs"
    assert wish.reason in found.told(found.plan[0])
    assert found.foreseen in said
    assert "which is clearly less); 100% of the hours were measured" in found.foreseen


def test_what_a_clock_that_was_ahead_wrote_down_is_not_known_before_its_time_comes(
    ledger: Ledger, declared: Configuration
) -> None:
    measured(ledger, FIRST, NOW)
    forecast = foresee(ledger, declared, NOW)
    measured(ledger, NOW.replace(minute=0), NOW + timedelta(days=1), gpus=repeat(4000.0))
    ledger.import_jobs("slurm", [JobRecord(job="a", submitted_at=NOW + timedelta(hours=20), gpus=4000)])
    assert foresee(ledger, declared, NOW) == forecast


def test_a_day_that_a_clock_which_was_behind_has_left_out_is_a_gap_like_any_other(
    ledger: Ledger, declared: Configuration
) -> None:
    measured(ledger, FIRST, NOW - timedelta(days=2))
    measured(ledger, NOW.replace(minute=0) - timedelta(days=1), NOW)
    forecast = foresee(ledger, declared, NOW).forecasts[EVERYWHERE]
    assert forecast.gpus == ((40, 40), (40, 40))
    assert forecast.coverage == pytest.approx(1 - 24 / (24 * 19 + 9), abs=0.003)


def test_a_host_whose_clock_is_a_day_ahead_foresees_nothing(ledger: Ledger, declared: Configuration) -> None:
    measured(ledger, FIRST, NOW)
    assert foresee(ledger, declared, NOW + timedelta(days=1)).forecasts == {}
