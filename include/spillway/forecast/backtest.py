"""How well a history could have been forecast: rolling origins, each knowing what was known then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import numpy as np

from spillway.errors import InsufficientHistory
from spillway.forecast.base import Floats, Forecaster, History
from spillway.forecast.baselines import DAY, SameTimeOfDay
from spillway.forecast.calibration import loss
from spillway.forecast.choosing import fit
from spillway.forecast.models import CANDIDATES

QUANTILES = (0.1, 0.5, 0.9)
"""What is scored: the middle one as the forecast, the outer two as the interval of 80 %."""

REFIT = DAY
CHOSEN = "chosen"

Fit = Callable[[History, int], Forecaster]
"""Learns from a history for so many steps ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one method forecast the last of ``horizon`` steps, at that many origins.

    ``wape`` is the sum of absolute errors of the median by the sum of demand, ``pinball`` the mean loss of QUANTILES by
    the mean of demand; both in percent. ``mase`` is the mean absolute error by that of the day before, over the history
    before the first origin. ``coverage`` is how much of the outcomes the interval held, rounded up as it is. Seconds
    are those of a fit and of a forecast, in the mean.
    """

    method: str
    horizon: int
    origins: int
    wape: float
    mase: float
    pinball: float
    coverage: float
    fit_seconds: float
    forecast_seconds: float
    models: Mapping[str, int]


METHODS: dict[str, Fit] = {
    SameTimeOfDay().model: lambda history, horizon: SameTimeOfDay(),
    **{name: partial(fit, names=(name,)) for name in CANDIDATES},
    CHOSEN: fit,
}
"""Everything that can be scored: the rule as it stands, each candidate with learned intervals, and what is chosen."""


def backtest(
    method: str,
    history: History,
    *,
    horizon: int,
    lasting: timedelta,
    clock: Callable[[], float],
    after: Callable[[int, int], None] = lambda done, of: None,
) -> Score:
    """Score a method of METHODS at every origin of the last days, oldest first; it learns anew every day.

    Args:
        horizon: the step ahead that is scored.
        lasting: over how much of the history origins go.
        clock: seconds, to measure with.
        after: told how many of how many origins are done.
    Raises:
        InsufficientHistory: less than a day and the horizon lie before the first origin.
    Source: Hyndman & Athanasopoulos, Forecasting: Principles and Practice, 3rd ed., 5.8-5.10.
    """
    first, last = history.present - history.steps(lasting), history.present - horizon + 1
    if first < history.steps(DAY) + horizon or last <= first:
        raise InsufficientHistory(
            history.present, f"too few to go back {lasting} from its end with a day and {horizon} steps before that"
        )
    origins = np.arange(first, last)
    made, models, seconds = [], dict[str, int](), {"fit": 0.0, "forecast": 0.0}
    fits = 0
    for number, origin in enumerate(origins.tolist()):
        then = history.until(origin)
        began = clock()
        if number % history.steps(REFIT) == 0:
            forecaster, fits = METHODS[method](then, horizon), fits + 1
            seconds["fit"] += clock() - began
            began = clock()
        forecast = forecaster.predict(then, horizon, QUANTILES)
        seconds["forecast"] += clock() - began
        made.append(forecast.gpus[-1])
        models[forecast.model] = models.get(forecast.model, 0) + 1
        after(number + 1, len(origins))
    came, naive = history.gpus[origins + horizon - 1], _naive_error(history, first)
    wape, pinball, coverage, error = _scored(np.array(made, float), came)
    return Score(
        method=method,
        horizon=horizon,
        origins=len(origins),
        wape=wape,
        mase=error / naive if naive else np.nan,
        pinball=pinball,
        coverage=coverage,
        fit_seconds=seconds["fit"] / fits,
        forecast_seconds=seconds["forecast"] / len(origins),
        models=models,
    )


def _scored(made: Floats, came: Floats) -> tuple[float, float, float, float]:
    """WAPE and pinball loss in percent of demand, coverage, mean absolute error; NaN where nothing was measured."""
    measured = np.isfinite(came)
    made, came = made[measured], came[measured]
    if not len(came):
        return np.nan, np.nan, np.nan, np.nan
    mean = float(came.mean())
    error = float(np.abs(came - made[:, 1]).mean())
    lost = float(loss(came, made, np.array(QUANTILES)).mean())
    held = float(((came >= made[:, 0]) & (came <= made[:, -1])).mean())
    return (100 * error / mean if mean else np.nan), (100 * lost / mean if mean else np.nan), held, error


def _naive_error(history: History, first: int) -> float:
    per_day = history.steps(DAY)
    off = np.abs(history.gpus[per_day:first] - history.gpus[: first - per_day])
    return float(off[np.isfinite(off)].mean()) if np.isfinite(off).any() else np.nan
