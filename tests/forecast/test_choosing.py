"""Which model is believed, and what is forecast of histories that are short, empty, flat or full of gaps."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from math import inf, nan
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from spillway.errors import InsufficientHistory
from spillway.forecast.base import Forecaster, History, rounded
from spillway.forecast.baselines import SameTimeOfDay
from spillway.forecast.calibration import LEVELS
from spillway.forecast.choosing import Choice, Fitted, fit
from spillway.model import JobRecord
from spillway.testing.histories import HOUR, MONDAY, clocked, made_up_history, made_up_jobs, peak_at_nine, series

QUANTILES = (0.1, 0.5, 0.9)
CHANCE = np.random.default_rng(3)

BAD: dict[str, list[float | None]] = {
    "nothing was ever wanted": [0.0] * 24 * 20,
    "always as much": [40.0] * 24 * 20,
    "one step": [17.0],
    "under a day": [3.0, 0.0, 5.5, 9.25, None, 7.0],
    "shorter than the horizon": [8.0] * 20,
    "one step of a week measured": [None] * 100 + [12.5] + [None] * 67,
    "gaps in every day": [None if hour % 24 in (3, 4, 15) else 20.0 + hour % 24 for hour in range(24 * 20)],
    "a gap up to now": [30.0] * 24 * 10 + [None] * 30,
    "a third measured": [None if hour % 3 else 10.0 + hour % 5 for hour in range(24 * 21)],
    "a single burst": [0.0] * 200 + [512.0] + [0.0] * 200,
    "falling to nothing": [float(max(0, 300 - hour)) for hour in range(24 * 16)],
    "no steps that lie a day apart": [None if hour % 48 < 24 else 20.0 + hour % 7 for hour in range(24 * 20)],
}


@pytest.mark.parametrize("gpus", BAD.values(), ids=BAD)
@pytest.mark.parametrize("rule", [fit, lambda history, horizon: SameTimeOfDay()], ids=["chosen", "two weeks"])
def test_whatever_the_history_gpus_are_whole_rising_and_not_below_none(gpus: list[float | None], rule: object) -> None:
    history = History.of(series(*gpus))
    assert callable(rule)
    forecaster: Forecaster = rule(history, 30)
    made = forecaster.predict(history, 30, (0.05, 0.5, 0.5, 0.999))
    assert len(made.gpus) == 30
    for row in made.gpus:
        assert all(type(value) is int and value >= 0 for value in row)
        assert list(row) == sorted(row)
    assert made.coverage == sum(value is not None for value in gpus) / len(gpus)
    assert made.made_at == MONDAY + len(gpus) * HOUR


@pytest.mark.parametrize("value", [nan, inf, -inf, -3.0])
@pytest.mark.parametrize("hours", [range(200, 230), range(470, 480)], ids=["within", "up to now"])
def test_what_cannot_be_a_number_of_gpus_is_a_gap(value: float, hours: range) -> None:
    gpus: list[float | None] = [20.0 + hour % 24 for hour in range(24 * 20)]
    made = []
    for instead in (None, value):
        changed = [instead if hour in hours else known for hour, known in enumerate(gpus)]
        history = History.of(series(*changed))
        made.append([rule.predict(history, 24, QUANTILES) for rule in (fit(history, 24), SameTimeOfDay())])
    assert made[0] == made[1]


@pytest.mark.parametrize("always", [0.0, 40.0, 40.25])
def test_a_constant_is_forecast_as_it_is_rounded_up(always: float) -> None:
    history = History.of(series(*[always] * 24 * 20))
    made = fit(history, 24).predict(history, 24, QUANTILES)
    assert set(made.gpus) == {(int(np.ceil(always)),) * 3}


def test_of_a_short_history_the_current_count_is_taken_and_told() -> None:
    history = History.of(series(3.0, 0.0, 5.5, 9.25, None, 7.5))
    made = fit(history, 24).predict(history, 24, QUANTILES)
    assert (made.model, made.reason) == (
        "current count", "24 h ahead: current count, as there is nothing to choose by",
    )  # fmt: skip
    assert made.gpus[-1] == (8, 8, 8)
    nearest = made.gpus[0]
    assert nearest[0] < nearest[1] < nearest[2]  # the growth from hour to hour was seen, that over a day was not


def test_where_nothing_was_ever_measured_there_is_no_forecast_and_no_zero() -> None:
    for gpus in ([], [None] * 50):
        history = History.of(series(*gpus))
        for forecaster in (fit(history, 24), SameTimeOfDay()):
            with pytest.raises(InsufficientHistory, match="record samples first, or import a history of jobs"):
                forecaster.predict(history, 24, QUANTILES)


def test_jobs_alone_tell_what_is_wanted_where_no_step_was_measured() -> None:
    jobs = [JobRecord(job="a", submitted_at=MONDAY, gpus=6)]
    history = History.of(series(None, None), jobs)
    assert fit(history, 2).predict(history, 2, (0.5,)).gpus == ((6,), (6,))


def noise(local: datetime) -> float:
    return peak_at_nine(local) + float(CHANCE.uniform(0, 4))


def test_a_daily_peak_is_forecast_by_the_time_of_day_as_it_clearly_loses_less() -> None:
    history = History.of(clocked(datetime(2026, 1, 5, tzinfo=ZoneInfo("UTC")), 40, noise))
    made = fit(history, 24).predict(history, 24, QUANTILES)
    assert made.model in {"two-week rule", "three-month rule"}
    assert made.reason.endswith(", which is clearly less")
    assert [step for step, row in enumerate(made.gpus) if row[1] > 80] == [9]


@pytest.mark.parametrize("days", [26, 28, 30])
def test_the_chosen_peak_stays_at_nine_by_the_clocks_over_their_change(days: int) -> None:
    """K35, of the forecast that is used."""
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 3, 1, tzinfo=berlin)
    history = History.of(clocked(first, days, noise), time_zone="Europe/Berlin")
    made = fit(history, 48).predict(history, 48, QUANTILES)
    moments = [(made.made_at + step * HOUR).astimezone(berlin) for step in range(48)]
    assert [at.hour for at, row in zip(moments, made.gpus, strict=True) if row[1] > 80] == [9, 9]


def test_an_outage_of_the_measurement_does_not_move_the_chosen_forecast_and_zeros_do() -> None:
    """K34, of the forecast that is used: six hours up to now."""
    usual = [100.0 + 10 * (hour % 24) + float(CHANCE.uniform(0, 4)) for hour in range(24 * 14)]
    made = {}
    for name, last in (("usual", usual[-6:]), ("gap", [None] * 6), ("zeros", [0.0] * 6)):
        history = History.of(series(*usual[:-6], *last))
        forecast = fit(history, 24).predict(history, 24, QUANTILES)
        made[name] = np.array(forecast.gpus)[-6:, 1]
        assert forecast.coverage == pytest.approx(1.0 if name != "gap" else 1 - 6 / (24 * 14))
    assert made["gap"].tolist() == pytest.approx(made["usual"].tolist(), rel=0.1)
    assert (made["zeros"] < made["usual"]).all()


def test_demand_without_a_pattern_is_forecast_by_what_is_wanted_now() -> None:
    walk = np.abs(200 + np.cumsum(CHANCE.normal(0, 5, 24 * 30)))
    history = History.of(series(*walk.tolist()))
    made = fit(history, 1).predict(history, 1, QUANTILES)
    assert made.model == "current count"
    assert made.gpus[0][0] < walk[-1] < made.gpus[0][2]


def test_of_jobs_a_model_that_sees_their_ages_is_chosen_and_its_reason_says_what_it_beats() -> None:
    jobs = made_up_history(45)
    fitted = fit(jobs, 24)
    made = fitted.predict(jobs, 24, QUANTILES)
    assert made.model in {"survival", "stack on survival", "stack on the count"}
    assert "24 h ahead" in made.reason
    assert "rule" in made.reason
    assert [choice.step for choice in fitted.choices] == [1, 5, 24]


def test_where_most_is_wanted_by_no_job_the_last_step_is_believed() -> None:
    history = made_up_history(30)
    others = 900 + np.cumsum(np.random.default_rng(3).normal(0.0, 60.0, history.present))
    made = fit(replace(history, gpus=history.gpus + others), 2)
    assert [choice.name for choice in made.choices] == ["last step", "last step"]


def test_what_was_learned_yesterday_forecasts_today_from_the_jobs_of_today() -> None:
    history = made_up_history(45)
    learned = fit(history.until(history.present - 24), 1)
    records = [
        *made_up_jobs(45),
        *(JobRecord(job=f"n{n}", submitted_at=history.ends_at - HOUR, gpus=8) for n in range(50)),
    ]
    burst = History.of(series(*history.gpus.tolist()), records)
    calm, busy = (learned.predict(then, 1, (0.5,)).gpus[0][0] for then in (history, burst))
    assert busy > calm + 300


def test_steps_beyond_what_was_learned_and_any_quantile_can_be_asked_for() -> None:
    history = made_up_history(20)
    made = fit(history, 4).predict(history, 12, (0.0, 0.33, 1.0))
    assert len(made.gpus) == 12
    assert all(low <= middle <= high for low, middle, high in made.gpus)


def test_a_step_is_as_long_as_that_of_the_history() -> None:
    quarter = timedelta(minutes=15)
    history = History.of(series(*[20.0, 24.0] * 4 * 24 * 5, step=quarter))
    made = fit(history, 8).predict(history, 8, (0.5,))
    assert (made.step, len(made.gpus), made.made_at) == (quarter, 8, history.ends_at)


def test_where_nearer_steps_go_by_another_model_each_choice_is_told() -> None:
    nothing = np.zeros((len(LEVELS), 1))
    one, two = (
        Choice(step=step, name=name, reason=f"why {name}", weights=nothing, weights_before=nothing, levels=LEVELS)
        for step, name in ((1, "current count"), (4, "two-week rule"))
    )
    history = History.of(series(*[5.0] * 24 * 15))
    made = [Fitted(choices=(one, two), curves=None).predict(history, horizon, QUANTILES) for horizon in (1, 2, 9)]
    assert [(forecast.model, forecast.reason) for forecast in made] == [
        ("current count", "why current count"),
        *[("two-week rule", "why current count; why two-week rule")] * 2,
    ]
    alike = Fitted(choices=(one, replace(two, name="current count")), curves=None)
    assert alike.predict(history, 9, QUANTILES).reason == "why two-week rule"


def test_quantiles_that_cross_are_put_in_order() -> None:
    history = History.of(series(1.0, 2.0))
    made = rounded(history, np.array([[5.0, 3.2, -1.0], [-2.0, 0.0, 4.5]]), QUANTILES, model="m")
    assert made.gpus == ((5, 5, 5), (0, 0, 5))


def test_jobs_of_a_day_and_a_half_are_too_few_to_choose_by() -> None:
    history = made_up_history(10)
    young = history.until(36)
    assert {choice.reason.partition(", ")[2] for choice in fit(young, 24).choices} == {
        "as there is nothing to choose by"
    }
    assert {choice.name for choice in fit(young, 24).choices} == {"current count"}
    assert "in the backtest" in fit(history, 24).choices[0].reason
