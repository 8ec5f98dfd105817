"""How well demand is forecast: rolling origins over the last 28 days of two public traces. One line a figure.

``SPILLWAY_TRACES`` names a directory with the traces; docs/forecast.md says which. Seconds are CPU time: what else the
machine does is none of it.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from spillway.forecast.backtest import CHOSEN, METHODS, Score, backtest
from spillway.forecast.base import History
from spillway.forecast.baselines import SameTimeOfDay
from spillway.forecast.models import COUNT, DAY_BEFORE, LAST, RULES, TWO_WEEKS
from spillway.forecast.series import of_jobs
from spillway.replay.trace import read_trace

TRACES = {"itp": "itp_jobs.csv.gz", "philly": "philly_jobs_weeks_1_7.csv.gz"}
LASTING = timedelta(days=28)
PERSISTENCE = (LAST, COUNT)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@cache
def history(name: str) -> History:
    folder = os.environ.get("SPILLWAY_TRACES")
    if not folder or not Path(folder, TRACES[name]).is_file():
        pytest.skip(f"SPILLWAY_TRACES names no directory with {TRACES[name]}")
    return of_jobs(read_trace(Path(folder, TRACES[name])).jobs)


def scores(name: str, horizon: int) -> dict[str, Score]:
    """All methods side by side, each shown."""
    found = {}
    for method in METHODS:
        score = backtest(method, history(name), horizon=horizon, lasting=LASTING, clock=time.process_time)
        print(
            f"# {name} {horizon} h  {method:32} WAPE {score.wape:5.2f}  MASE {score.mase:4.2f}"
            f"  pinball {score.pinball:5.3f}  coverage {score.coverage:5.3f}  fit {1e3 * score.fit_seconds:4.0f} ms"
            f"  forecast {1e3 * score.forecast_seconds:4.1f} ms  {dict(score.models) if len(score.models) > 1 else ''}",
            flush=True,
        )
        found[method] = score
    return found


def as_they_stand(name: str, horizon: int) -> dict[str, float]:
    """WAPE of the rules themselves, without anything learned of their errors."""
    known = history(name)
    origins = np.arange(known.present - known.steps(LASTING), known.present - horizon + 1)
    came = known.gpus[origins + horizon - 1]
    found = {
        rule: float(100 * np.abs(made(known, origins, np.array([horizon]))[:, 0] - came).sum() / came.sum())
        for rule, made in RULES.items()
    }
    print(f"# {name} {horizon} h  rules as they stand, WAPE:", {rule: round(wape, 2) for rule, wape in found.items()})
    return found


def least(found: dict[str, Score], alone: dict[str, float], *rules: str) -> float:
    """The least WAPE of those rules, with and without what is learned of their errors."""
    return min([found[rule].wape for rule in rules] + [alone[rule] for rule in rules])


def line(name: str, value: float, goal: float) -> None:
    print(f"{name} {value:.3f} goal <={goal} {'ok' if value <= goal else 'short'}", flush=True)


def common(name: str, horizon: int, chosen: Score) -> None:
    line(f"forecast_{name}_{horizon}h_coverage_off_0.8", abs(chosen.coverage - 0.8), 0.05)
    line(f"forecast_{name}_{horizon}h_fit_ms", 1e3 * chosen.fit_seconds, 200)
    line(f"forecast_{name}_{horizon}h_forecast_ms", 1e3 * chosen.forecast_seconds, 10)


@pytest.mark.parametrize(("name", "most"), [("itp", 0.87), ("philly", 0.97)])
def test_a_day_ahead(name: str, most: float) -> None:
    """Beside the best rule on the one trace and persistence on the other, and the quantiles of the two-week rule."""
    found, alone = scores(name, 24), as_they_stand(name, 24)
    chosen, weeks = found[CHOSEN], (found[SameTimeOfDay().model], found[TWO_WEEKS])
    rules = (TWO_WEEKS, DAY_BEFORE, *PERSISTENCE) if name == "itp" else PERSISTENCE
    line(f"forecast_{name}_24h_wape_by_{'best_rule' if name == 'itp' else 'persistence'}",
         chosen.wape / min(least(found, alone, *rules), weeks[0].wape if name == "itp" else np.inf), most)  # fmt: skip
    line(f"forecast_{name}_24h_pinball_by_two_week_rule", chosen.pinball / min(week.pinball for week in weeks), 0.8)
    common(name, 24, chosen)


@pytest.mark.parametrize("name", TRACES)
def test_an_hour_ahead(name: str) -> None:
    """Beside the current count, with the quantiles of its growth."""
    found, alone = scores(name, 1), as_they_stand(name, 1)
    chosen, weeks = found[CHOSEN], (found[SameTimeOfDay().model], found[TWO_WEEKS])
    line(f"forecast_{name}_1h_wape_by_current_count", chosen.wape / least(found, alone, COUNT), 1.0)
    line(f"forecast_{name}_1h_pinball_by_current_count", chosen.pinball / found[COUNT].pinball, 0.96)
    line(f"forecast_{name}_1h_pinball_by_two_week_rule", chosen.pinball / min(week.pinball for week in weeks), 0.8)
    common(name, 1, chosen)
