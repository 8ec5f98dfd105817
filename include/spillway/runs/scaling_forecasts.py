"""What the scaler is told of the demand to come, from the hours that were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import dropwhile, takewhile
from math import ceil

from spillway.model import DemandSeries, Forecast
from spillway.runs.services import Services
from spillway.scaling.ahead import EVERYWHERE

LOOKED_AT = timedelta(days=42)
"""So much of the past is learned from, and chosen by."""
LEAST = timedelta(days=1)
"""Of less than that nothing is foreseen: nodes then come for what waits alone."""


def forecasts(services: Services, now: datetime) -> Mapping[tuple[str, str], Forecast]:
    """Of all demand, for as long as the rules look ahead; nothing where they do not, or where too little is known.

    Nothing is foreseen either while the last whole hour was not measured: what is happening now is not known then.
    Before the first measured hour the jobs count that were imported of the scheduler before.
    """
    rule = services.configuration.scaling.forecast
    if rule is None:
        return {}
    series = _known(services, services.ledger.demand(now - LOOKED_AT, now))
    if len(series.gpus) * series.step < LEAST or series.gpus[-1] is None:
        return {}
    from spillway.forecast.base import LOOKS_BACK, History
    from spillway.forecast.choosing import fit

    jobs = services.ledger.demanding_jobs(series.starts_at - timedelta(seconds=LOOKS_BACK), now)
    history = History.of(series, jobs, time_zone=services.configuration.policy.time_zone)
    steps = ceil(rule.ahead / series.step) + 1  # from the last whole hour on
    return {EVERYWHERE: fit(history, steps).predict(history, steps, (0.5, rule.quantile))}


def _known(services: Services, series: DemandSeries) -> DemandSeries:
    """From the first hour on that was measured, or told by an imported log: before that there was nothing to know."""
    unmeasured = sum(1 for _ in takewhile(lambda value: value is None, series.gpus))
    before = services.ledger.imported_demand(series.starts_at, unmeasured)
    gpus = tuple(dropwhile(lambda value: value is None, before.gpus + series.gpus[unmeasured:]))
    starts_at = series.starts_at + (len(series.gpus) - len(gpus)) * series.step
    return DemandSeries(starts_at=starts_at, step=series.step, gpus=gpus)
