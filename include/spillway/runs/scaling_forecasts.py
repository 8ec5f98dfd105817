"""What the scaler is told of the demand to come, from the hours that were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import dropwhile, takewhile

from spillway.model import DemandSeries, Forecast
from spillway.runs.services import Services
from spillway.scaling.ahead import EVERYWHERE


def forecasts(services: Services, now: datetime) -> Mapping[tuple[str, str], Forecast]:
    """Of all demand, for as long as the rules look ahead; nothing where they do not, or where too little is known.

    Nothing is foreseen either while the last whole hour was not measured: what is happening now is not known then.
    Before the first measured hour the jobs count that were imported of the scheduler before.
    """
    rule = services.configuration.scaling.forecast
    if rule is None:
        return {}
    from spillway.forecast.base import LOOKS_BACK, History
    from spillway.scaling.foresight import LOOKED_AT, foreseen_by, learned

    series = _known(services, services.ledger.demand(now - LOOKED_AT, now))
    jobs = services.ledger.demanding_jobs(series.starts_at - timedelta(seconds=LOOKS_BACK), now)
    history = History.of(series, jobs, time_zone=services.configuration.policy.time_zone)
    forecast = foreseen_by(rule, history, learned(rule, history))
    return {} if forecast is None else {EVERYWHERE: forecast}


def _known(services: Services, series: DemandSeries) -> DemandSeries:
    """From the first hour on that was measured, or told by an imported log: before that there was nothing to know."""
    unmeasured = sum(1 for _ in takewhile(lambda value: value is None, series.gpus))
    before = services.ledger.imported_demand(series.starts_at, unmeasured)
    gpus = tuple(dropwhile(lambda value: value is None, before.gpus + series.gpus[unmeasured:]))
    starts_at = series.starts_at + (len(series.gpus) - len(gpus)) * series.step
    return DemandSeries(starts_at=starts_at, step=series.step, gpus=gpus)
