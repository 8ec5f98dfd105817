"""The window of the monthly iteration: one a month, by the clocks of its zone, half-open."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from spillway.months import Window, month_of
from spillway.windows import Iteration, begun_window, coming_window, next_window, window_of, windows_between

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland", "Africa/Cairo")
"""Of both hemispheres, with and without summer time, with half an hour, and with clocks that change at midnight."""
BERLIN = Iteration(time_zone="Europe/Berlin")
BERLIN_WEEK = Iteration(days=None, time_zone="Europe/Berlin")
DEFINITIONS = [
    pytest.param(Iteration(days=days, time_zone=zone), id=f"{days or 'iso-week'}-{zone}")
    for zone in ZONES
    for days in (7, 1, 28, None)
]
FIRST = datetime(2025, 1, 15, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def months(iteration: Iteration) -> list[Window]:
    """The windows of 36 months from January 2025."""
    month, found = month_of(FIRST, iteration.time_zone), []
    for _ in range(36):
        found.append(window_of(month, iteration))
        month = month_of(month.ends_at, iteration.time_zone)
    return found


def local_days(window: Window, zone: str) -> list[date]:
    """The days on which the window has a moment, by the clocks of the zone."""
    first, last = ((at).astimezone(ZoneInfo(zone)).date() for at in (window.starts_at, window.ends_at - MOMENT))
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


@pytest.mark.parametrize("iteration", DEFINITIONS)
class TestThirtySixMonths:
    def test_there_is_one_window_a_month_and_they_rise_without_overlap(self, iteration: Iteration) -> None:
        found = months(iteration)
        assert [window.name for window in found] == [f"{y}-{m:02}" for y in (2025, 2026, 2027) for m in range(1, 13)]
        assert all(window.starts_at < window.ends_at for window in found)
        assert all(one.ends_at <= other.starts_at for one, other in pairwise(found))

    def test_it_is_whole_local_days_of_the_month_or_the_week_of_its_last_thursday(self, iteration: Iteration) -> None:
        for window in months(iteration):
            days = local_days(window, iteration.time_zone)
            if iteration.days is None:
                assert [day.isoweekday() for day in days] == [1, 2, 3, 4, 5, 6, 7]
                assert f"{days[3]:%Y-%m}" == window.name
                assert f"{days[3] + timedelta(weeks=1):%Y-%m}" > window.name
            else:
                assert len(days) == iteration.days
                assert {f"{day:%Y-%m}" for day in days} == {window.name}
                assert f"{days[-1] + timedelta(days=1):%Y-%m}" > window.name
            for edge in (window.starts_at, window.ends_at):
                zone = ZoneInfo(iteration.time_zone)
                assert (edge - MOMENT).astimezone(zone).date() < edge.astimezone(zone).date()

    def test_every_way_to_ask_gives_the_same_windows(self, iteration: Iteration) -> None:
        found = months(iteration)
        assert list(windows_between(found[0].starts_at, found[-1].ends_at, iteration)) == found
        for before, window in pairwise(found):
            assert next_window(before.starts_at + MOMENT, iteration) == window
            assert next_window(window.starts_at, iteration) == window
            assert coming_window(before.ends_at, iteration) == window
            assert coming_window(window.ends_at - MOMENT, iteration) == window
            assert begun_window(window.starts_at, iteration) == window
            assert begun_window(window.starts_at - MOMENT, iteration) == before


def test_the_last_seven_days_are_an_hour_shorter_or_longer_where_the_clocks_change() -> None:
    lengths = {
        window.name: window.ends_at - window.starts_at
        for window in months(BERLIN)
        if window.ends_at - window.starts_at != timedelta(days=7)
    }
    shorter, longer = timedelta(hours=167), timedelta(hours=169)
    assert lengths == {
        "2025-03": shorter,
        "2025-10": longer,
        "2026-03": shorter,
        "2026-10": longer,
        "2027-03": shorter,
        "2027-10": longer,
    }


def test_a_day_without_a_midnight_begins_where_its_clocks_begin() -> None:
    """Cairo went from 23:59 on Thursday to 01:00 on Friday, the 24th: the first of the last seven days."""
    window = window_of(month_of(datetime(2026, 4, 10, tzinfo=UTC), "Africa/Cairo"), Iteration(time_zone="Africa/Cairo"))
    assert window == Window(
        name="2026-04",
        starts_at=datetime(2026, 4, 23, 22, tzinfo=UTC),
        ends_at=datetime(2026, 4, 30, 21, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("month", "first"),
    [
        pytest.param(date(2026, 11, 10), date(2026, 11, 23), id="the-30th-a-monday-begins-a-week-of-december"),
        pytest.param(date(2026, 12, 10), date(2026, 12, 28), id="the-31st-a-thursday-is-in-the-last-week"),
        pytest.param(date(2026, 7, 10), date(2026, 7, 27), id="a-week-that-ends-in-august"),
        pytest.param(date(2027, 2, 10), date(2027, 2, 22), id="four-weeks-from-monday-to-sunday"),
    ],
)
def test_the_last_iso_week_is_that_of_the_last_thursday(month: date, first: date) -> None:
    noon = datetime(month.year, month.month, month.day, 12, tzinfo=UTC)
    window = window_of(month_of(noon, "Europe/Berlin"), BERLIN_WEEK)
    assert local_days(window, "Europe/Berlin") == [first + timedelta(days=number) for number in range(7)]


def test_the_moment_that_ends_a_window_belongs_to_no_window() -> None:
    window = coming_window(datetime(2026, 11, 10, tzinfo=UTC), BERLIN)
    assert window.starts_at in window
    assert window.ends_at not in window
    assert windows_between(window.ends_at, window.ends_at + timedelta(days=5), BERLIN) == ()
    assert windows_between(window.starts_at - timedelta(days=5), window.starts_at, BERLIN) == ()


def test_windows_between_are_those_that_it_touches() -> None:
    november = coming_window(datetime(2026, 11, 10, tzinfo=UTC), BERLIN)
    december = next_window(november.ends_at, BERLIN)
    assert windows_between(november.ends_at - MOMENT, december.starts_at + MOMENT, BERLIN) == (november, december)
    assert windows_between(december.starts_at, november.starts_at, BERLIN) == ()
