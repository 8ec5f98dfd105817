"""The rules that learn nothing, with gaps, zeros and changed clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from spillway.forecast import baselines
from spillway.forecast.base import History
from spillway.forecast.baselines import SameTimeOfDay
from spillway.model import Forecast
from spillway.testing.histories import HOUR, clocked, made_up_history, peak_at_nine, series

BERLIN = ZoneInfo("Europe/Berlin")
MEDIAN = (0.5,)
DAYS = 14


def by_hour(**changed: float | None) -> list[float | None]:
    """Two weeks in which each hour wants as much as it did the day before, and a little more than the hour before."""
    gpus: list[float | None] = [100.0 + 10 * (hour % 24) for hour in range(24 * DAYS)]
    for hour, value in changed.items():
        gpus[int(hour.removeprefix("h"))] = value
    return gpus


def next_day(gpus: list[float | None]) -> list[int]:
    return [row[0] for row in SameTimeOfDay().predict(History.of(series(*gpus)), 24, MEDIAN).gpus]


def mean_next_day(gpus: list[float | None]) -> list[float]:
    history = History.of(series(*gpus))
    found: list[float] = baselines.same_time_of_day(history, np.array([history.present]), np.arange(1, 25))[0].tolist()
    return found


def test_the_next_day_is_the_mean_of_its_hours_over_two_weeks() -> None:
    assert mean_next_day(by_hour()) == next_day(by_hour()) == [100 + 10 * hour for hour in range(24)]


@pytest.mark.parametrize("first", [24 * (DAYS - 1) + 8, 24 * DAYS - 6], ids=["within the last day", "up to now"])
def test_hours_that_nobody_measured_do_not_change_what_is_forecast_for_them(first: int) -> None:
    """K34: a gap is no zero; the coverage tells of it."""
    gap = by_hour(**{f"h{hour}": None for hour in range(first, first + 6)})
    assert mean_next_day(gap) == pytest.approx(mean_next_day(by_hour()), rel=0.1)
    made = SameTimeOfDay().predict(History.of(series(*gap)), 24, MEDIAN)
    assert [row[0] for row in made.gpus] == next_day(by_hour())
    assert made.coverage == pytest.approx(1 - 6 / (24 * DAYS))


def test_hours_that_wanted_nothing_lower_what_is_forecast_for_them() -> None:
    """K34: a zero is no gap."""
    hours = range(24 * (DAYS - 1) + 8, 24 * (DAYS - 1) + 14)
    zeros = mean_next_day(by_hour(**{f"h{hour}": 0.0 for hour in hours}))
    usual = mean_next_day(by_hour())
    assert [low < high for low, high in zip(zeros, usual, strict=True)] == [8 <= hour < 14 for hour in range(24)]


def test_an_hour_of_the_day_that_was_never_measured_is_judged_by_the_others_and_told() -> None:
    gpus = by_hour(**{f"h{24 * day + 8}": None for day in range(DAYS)})
    made = SameTimeOfDay().predict(History.of(series(*gpus)), 24, (0.1, 0.5, 0.9))
    assert made.reason == "1 of 24 steps were never measured at their time of day"
    assert made.gpus[8][0] < made.gpus[8][1] < made.gpus[8][2]


def local_peaks(made: Forecast) -> list[tuple[int, int]]:
    """Day and hour by the clocks of Berlin of each step that wants most."""
    most = max(row[0] for row in made.gpus)
    moments = [(made.made_at + step * made.step).astimezone(BERLIN) for step in range(len(made.gpus))]
    return [(at.day, at.hour) for at, row in zip(moments, made.gpus, strict=True) if row[0] == most]


@pytest.mark.parametrize(
    "first",
    [datetime(2026, 3, 14, tzinfo=BERLIN), datetime(2026, 10, 10, tzinfo=BERLIN)],
    ids=["an hour is left out", "an hour comes twice"],
)
@pytest.mark.parametrize("days", [14, 15, 16, 20])
def test_the_peak_stays_at_nine_by_the_clocks_on_both_sides_of_their_change(first: datetime, days: int) -> None:
    """K35: the two weeks end a day before, on and after the day of the change."""
    history = History.of(clocked(first, days, peak_at_nine), time_zone="Europe/Berlin")
    made = SameTimeOfDay().predict(history, 72, MEDIAN)
    assert made.made_at == (first + timedelta(days=days)).astimezone(UTC)
    assert local_peaks(made) == [((first + timedelta(days=days + later)).day, 9) for later in range(3)]


@pytest.mark.parametrize(
    "first",
    [datetime(2026, 3, 14, tzinfo=BERLIN), datetime(2026, 10, 10, tzinfo=BERLIN)],
    ids=["an hour is left out", "an hour comes twice"],
)
@pytest.mark.parametrize("days", [14, 17])
def test_half_an_hour_ahead_the_peak_is_foreseen_at_half_past_eight(first: datetime, days: int) -> None:
    """K35, of whoever orders nodes half an hour ahead of demand."""
    half = timedelta(minutes=30)
    known = clocked(first, days, peak_at_nine, step=half)
    at = (first + timedelta(days=days, hours=8)).astimezone(UTC)
    foreseen = []
    for _ in range(4):
        steps = (at - known.starts_at) // half
        gpus = tuple(peak_at_nine((known.starts_at + step * half).astimezone(BERLIN)) for step in range(steps))
        history = History.of(series(*gpus, starts_at=known.starts_at, step=half), time_zone="Europe/Berlin")
        made = SameTimeOfDay().predict(history, 2, MEDIAN)
        if made.gpus[1] == (90,):
            foreseen.append(at.astimezone(BERLIN))
        at += half
    assert [(moment.hour, moment.minute) for moment in foreseen] == [(8, 30), (9, 0)]


def test_the_count_is_of_now_and_the_last_step_is_the_last_that_was_measured() -> None:
    history = History.of(series(5.0, 7.0, None))
    now, steps = np.arange(4), np.array([1, 2])
    last = baselines.last_step(history, now, steps)
    assert np.isnan(last[0]).all()
    assert last[1:].tolist() == [[5.0, 5.0], [7.0, 7.0], [7.0, 7.0]]
    assert np.array_equal(baselines.current_count(history, now, steps), last, equal_nan=True)


def test_the_day_before_is_the_newest_known_step_of_the_same_time() -> None:
    history = History.of(series(*map(float, range(48))))
    assert baselines.day_before(history, np.array([48]), np.array([1, 24, 25])).tolist() == [[24.0, 47.0, 24.0]]


def test_three_days_above_their_week_are_told_as_such_and_what_nobody_measured_is_left_out() -> None:
    gpus: list[float | None] = [40.0] * 24 * 4 + [110.0] * 24 * 3
    whole, after_four_days = baselines.lately(History.of(series(*gpus)), np.array([168, 96]))
    assert (whole, after_four_days) == (pytest.approx(110 - (4 * 40 + 3 * 110) / 7), 0.0)
    unmeasured = [*gpus[:-24], *[None] * 24]
    (gap,) = baselines.lately(History.of(series(*unmeasured)), np.array([168]))
    assert gap == pytest.approx(110 - (4 * 40 + 2 * 110) / 6)
    assert np.isnan(baselines.lately(History.of(series(*gpus[:96], *[None] * 72)), np.array([168]))).all()


@pytest.mark.parametrize("rule", [
    baselines.current_count, baselines.last_step, baselines.day_before, baselines.same_time_of_day,
    baselines.three_months,
])  # fmt: skip
def test_no_rule_knows_what_comes_after_its_origin(rule: baselines.Rule) -> None:
    history = made_up_history(5)
    origins, steps = np.array([30, 60, 100]), np.array([1, 7, 24, 30])
    found = rule(history, origins, steps)
    for at, origin in enumerate(origins.tolist()):
        then = history.until(origin)
        assert np.array_equal(rule(then, np.array([origin]), steps)[0], found[at], equal_nan=True)


@pytest.mark.parametrize(("month", "day"), [(3, 15), (10, 11)], ids=["an hour is left out", "an hour comes twice"])
def test_where_clocks_are_changed_no_origin_knows_an_hour_that_is_yet_to_come(month: int, day: int) -> None:
    """K35: where an hour was left out, the clock of the day before reads the same 23 hours ago."""
    known = clocked(datetime(2026, month, day, tzinfo=BERLIN), 20, lambda at: float(at.day * 100 + at.hour))
    history, steps = History.of(known, time_zone="Europe/Berlin"), np.arange(1, 50)
    for origin in range(13 * 24, 16 * 24):
        found = baselines.same_time_of_day(history, np.array([origin]), steps, days=1)
        then = baselines.same_time_of_day(history.until(origin), np.array([origin]), steps, days=1)
        assert np.array_equal(then, found, equal_nan=True), origin


@pytest.mark.parametrize("zone", ["Australia/Adelaide", "America/St_Johns", "Pacific/Chatham", "Europe/Berlin"])
@pytest.mark.parametrize("month", [3, 4, 10, 11])
def test_clocks_that_are_part_of_an_hour_off_change_by_an_hour_too(zone: str, month: int) -> None:
    """K35: hours are those of UTC, so the peak begins up to an hour after nine, at the same minute before and after."""
    first = datetime(2026, month, 1, tzinfo=ZoneInfo(zone)) - timedelta(days=7)
    for days in range(14, 24):
        history = History.of(clocked(first, days, peak_at_nine), time_zone=zone)
        made = SameTimeOfDay().predict(history, 48, (0.0, 0.5))
        moments = [(made.made_at + step * HOUR).astimezone(ZoneInfo(zone)) for step in range(48)]
        assert [at.hour for at, row in zip(moments, made.gpus, strict=True) if row == (90, 90)] == [9, 9], days


def test_a_zone_whose_clocks_are_half_an_hour_off_has_its_peak_in_its_hour() -> None:
    first = datetime(2026, 3, 14, tzinfo=ZoneInfo("Asia/Kolkata"))
    history = History.of(clocked(first, 14, peak_at_nine), time_zone="Asia/Kolkata")
    made = SameTimeOfDay().predict(history, 24, MEDIAN)
    assert [row[0] for row in made.gpus] == [90 if hour == 9 else 10 for hour in range(24)]
    assert history.step == HOUR
