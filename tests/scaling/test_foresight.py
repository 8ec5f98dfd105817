"""When enough is known for a forecast."""

from __future__ import annotations

from datetime import timedelta

from spillway.forecast.base import History
from spillway.scaling.foresight import foreseen_by, lacking, learned
from spillway.scaling.rules import ForecastRule
from spillway.testing.histories import series

RULE = ForecastRule(ahead=timedelta(minutes=15))
DAY = (8.0,) * 24


def test_of_less_than_a_day_nothing_is_foreseen_and_of_a_day_something_is() -> None:
    less, day = History.of(series(*DAY[1:])), History.of(series(*DAY))
    assert (learned(RULE, less), lacking(less)) == (
        None, "demand is known for 23 steps of 1:00:00, which is less than a day",
    )  # fmt: skip
    forecast = foreseen_by(RULE, day, learned(RULE, day))
    assert forecast is not None and lacking(day) == ""
    assert forecast.gpus == ((8, 8), (8, 8))


def test_what_was_learned_foresees_nothing_while_nobody_knows_what_is_happening_now() -> None:
    known = learned(RULE, History.of(series(*DAY)))
    unmeasured = History.of(series(*DAY, None))
    assert known is not None
    assert foreseen_by(RULE, unmeasured, known) is None
    assert lacking(unmeasured) == "the last step, until 01:00 UTC, was not measured"
    assert foreseen_by(RULE, History.of(series(*DAY, None, 8.0)), known) is not None
