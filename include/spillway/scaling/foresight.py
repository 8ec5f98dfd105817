"""What the scaler is told of the demand to come: how much of the past it goes by, and when that is enough."""

from __future__ import annotations

from datetime import timedelta
from math import ceil, isfinite

from spillway.errors.counts import counted
from spillway.forecast.base import History
from spillway.forecast.choosing import Fitted, fit
from spillway.model import Forecast
from spillway.scaling.rules import ForecastRule

LOOKED_AT = timedelta(days=42)
"""So much of the past is learned from, and chosen by."""
LEAST = timedelta(days=1)
"""Of less than that nothing is foreseen: nodes then come for what waits alone."""


def learned(rule: ForecastRule, history: History) -> Fitted | None:
    """What there is to learn of the history for as long as the rule looks ahead; None where too little is known."""
    return None if lacking(history) else fit(history, _steps(rule, history))


def foreseen_by(rule: ForecastRule, history: History, known: Fitted | None) -> Forecast | None:
    """What was learned, applied to a history that goes on from it; None where nothing was, or now is not known."""
    if known is None or lacking(history):
        return None
    return known.predict(history, _steps(rule, history), tuple(sorted({0.5, rule.quantile})))


def lacking(history: History) -> str:
    """Why nothing can be foreseen of it: it has less than a day, or nobody knows what is happening now; else empty."""
    if history.present * history.step < LEAST:
        return f"demand is known for {counted(history.present, 'step')} of {history.step}, which is less than a day"
    return "" if isfinite(history.gpus[-1]) else f"the last step, until {history.ends_at:%H:%M} UTC, was not measured"


def _steps(rule: ForecastRule, history: History) -> int:
    return ceil(rule.ahead / history.step) + 1  # from the last whole step on
