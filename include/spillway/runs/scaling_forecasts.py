"""What the scaler is told of the demand to come, from the hours that were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import dropwhile
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
    """
    rule = services.configuration.scaling.forecast
    if rule is None:
        return {}
    series = _measured(services.ledger.demand(now - LOOKED_AT, now))
    if len(series.gpus) * series.step < LEAST or series.gpus[-1] is None:
        return {}
    from spillway.forecast.base import History
    from spillway.forecast.choosing import fit

    history = History.of(series, time_zone=services.configuration.policy.time_zone)
    steps = ceil(rule.ahead / series.step) + 1  # from the last whole hour on
    return {EVERYWHERE: fit(history, steps).predict(history, steps, (0.5, rule.quantile))}


def _measured(series: DemandSeries) -> DemandSeries:
    """From the first hour on that was measured: before that there was nothing to measure."""
    gpus = tuple(dropwhile(lambda value: value is None, series.gpus))
    before = len(series.gpus) - len(gpus)
    return DemandSeries(starts_at=series.starts_at + before * series.step, step=series.step, gpus=gpus)
