"""What the scaler is told of the demand to come, from the hours that were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import dropwhile, takewhile

from spillway.config import Configuration
from spillway.errors.counts import counted
from spillway.ledger import Ledger
from spillway.model import DemandSeries, Forecast
from spillway.scaling.ahead import EVERYWHERE, gpus_wanted
from spillway.scaling.rules import ForecastRule

MEDIAN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Foresight:
    """Forecasts by what they are of, and for a person what they say, or why there is none.

    Nothing at all where the rules do not look ahead.
    """

    forecasts: Mapping[tuple[str, str], Forecast] = field(default_factory=dict)
    told: str = ""


def foresee(ledger: Ledger, declared: Configuration, now: datetime) -> Foresight:
    """All demand for as long as the rules look ahead; nothing where too little is known.

    Nothing is foreseen either while the last whole hour was not measured: what is happening now is not known then.
    Before the first measured hour the jobs count that were imported of the scheduler before.
    """
    rule = declared.scaling.forecast
    if rule is None:
        return Foresight()
    from spillway.forecast.base import LOOKS_BACK, History
    from spillway.scaling.foresight import LOOKED_AT, foreseen_by, lacking, learned

    series = _known(ledger, ledger.demand(now - LOOKED_AT, now), now)
    jobs = ledger.demanding_jobs(series.starts_at - timedelta(seconds=LOOKS_BACK), now)
    history = History.of(series, jobs, time_zone=declared.policy.time_zone)
    forecast = foreseen_by(rule, history, learned(rule, history))
    if forecast is None:
        return Foresight(told=f"nothing is foreseen: {lacking(history)}")
    return Foresight(forecasts={EVERYWHERE: forecast}, told=_told(forecast, rule, now))


def _told(forecast: Forecast, rule: ForecastRule, now: datetime) -> str:
    likely, most = (gpus_wanted(forecast, replace(rule, quantile=level), now) for level in (MEDIAN, rule.quantile))
    assert likely is not None and most is not None, "it reaches a step beyond what the rule looks at"
    return (
        f"foreseen until {now + rule.ahead:%H:%M} UTC: {counted(likely, 'GPU')}, with a probability of "
        f"{rule.quantile:g} no more than {most}, by {forecast.model} ({forecast.reason}); "
        f"{forecast.coverage:.0%} of the hours were measured"
    )


def _known(ledger: Ledger, series: DemandSeries, now: datetime) -> DemandSeries:
    """From the first hour on that was measured, or told by an imported log: before that there was nothing to know."""
    unmeasured = sum(1 for _ in takewhile(lambda value: value is None, series.gpus))
    before = ledger.imported_demand(series.starts_at, unmeasured, now)
    gpus = tuple(dropwhile(lambda value: value is None, before.gpus + series.gpus[unmeasured:]))
    starts_at = series.starts_at + (len(series.gpus) - len(gpus)) * series.step
    return DemandSeries(starts_at=starts_at, step=series.step, gpus=gpus)
