"""Rolling origins: what is scored, and that nothing is known before it happened."""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import numpy as np
import pytest

from spillway.errors import InsufficientHistory
from spillway.forecast.backtest import CHOSEN, METHODS, Score, backtest
from spillway.forecast.base import History
from spillway.testing.histories import made_up_history, series

DAYS = timedelta(days=3)


def scored(method: str, history: History, horizon: int = 1) -> Score:
    ticks = count()
    return backtest(method, history, horizon=horizon, lasting=DAYS, clock=lambda: float(next(ticks)))


def test_what_comes_every_day_is_forecast_without_error_by_the_time_of_day() -> None:
    history = History.of(series(*[100.0 + 10 * (hour % 24) for hour in range(24 * 10)]))
    found = scored("same time of day over 14 days", history, 24)
    assert found == Score(
        method="same time of day over 14 days", horizon=24, origins=3 * 24 - 23, wape=0.0, mase=found.mase, pinball=0.0,
        coverage=1.0, fit_seconds=1.0, forecast_seconds=1.0, models={"same time of day over 14 days": 49},
    )  # fmt: skip


def test_the_errors_of_the_count_are_those_of_the_steps_between() -> None:
    gpus = np.abs(200 + np.cumsum(np.random.default_rng(1).normal(0, 5, 24 * 20))).round()
    found = scored("last step", History.of(series(*gpus.tolist())), 1)
    moved = np.abs(np.diff(gpus))[-72:]
    assert found.origins == 72
    assert found.wape == pytest.approx(100 * moved.mean() / gpus[-72:].mean(), rel=0.15)
    day = np.abs(gpus[24:-72] - gpus[: -72 - 24]).mean()
    assert found.mase == pytest.approx(moved.mean() / day, rel=0.15)
    assert 0.6 <= found.coverage <= 0.95


@pytest.mark.parametrize("method", METHODS)
def test_what_happens_later_changes_no_earlier_forecast(method: str) -> None:
    history = made_up_history(16)
    origin = history.present - 48
    assert history.jobs is not None
    gone = np.where(np.arange(history.present) < origin, history.gpus, 10_000.0)
    other = History(ends_at=history.ends_at, step=history.step, gpus=gone, jobs=history.jobs)
    made = [
        METHODS[method](then, 6).predict(then, 6, (0.1, 0.9)) for then in (history.until(origin), other.until(origin))
    ]
    assert made[0] == made[1]


def test_the_chosen_one_tells_which_models_it_was_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    found = backtest(
        CHOSEN,
        made_up_history(20),
        horizon=1,
        lasting=DAYS,
        clock=lambda: 0.0,
        after=lambda *so_far: told.append(so_far),
    )
    assert sum(found.models.values()) == found.origins == 72
    assert told == [(number, 72) for number in range(1, 73)]


def test_steps_that_nobody_measured_are_not_scored() -> None:
    gpus = [100.0 + 10 * (hour % 24) for hour in range(24 * 10)]
    history = History.of(series(*gpus[:-10], *[None] * 10))
    assert scored("same time of day over 14 days", history).wape == 0.0


@pytest.mark.parametrize("days", [1, 3, 4])
def test_a_history_that_is_too_short_for_the_days_asked_for_is_refused(days: int) -> None:
    with pytest.raises(InsufficientHistory, match=f"has {24 * days} steps, too few to go back 3 days"):
        scored("last step", History.of(series(*[1.0] * 24 * days)), 24)
