"""When the monthly iteration is: one window at the end of each month, by the clocks of a zone.

The DAG that trains in it and the rule that has nodes ready for it ask here, so both mean the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import dropwhile, takewhile
from zoneinfo import ZoneInfo

from spillway.months import Month, Window, midnight, month_of

DAY, WEEK = timedelta(days=1), timedelta(weeks=1)
THURSDAY = 3
"""ISO 8601 counts a week, Monday to Sunday, to the year of its Thursday; here to the month, too."""
MOST_DAYS = 28
"""So many last days each month has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """Where in a month its window is: its last ``days`` days, or its last ISO week where that is None.

    The last ISO week is the one of the last Thursday: it may reach three days into the next month, or end as many
    before that begins. Days are those of ``time_zone``; one on which its clocks change has an hour more or less.
    """

    days: int | None = 7
    time_zone: str = "UTC"


def window_of(month: Month, iteration: Iteration) -> Window:
    """The window of a month, which is one of the iteration's zone."""
    after = month.ends_at.astimezone(ZoneInfo(iteration.time_zone)).date()
    if iteration.days is None:
        last = after - DAY
        begins = last - (last.weekday() - THURSDAY) % 7 * DAY - THURSDAY * DAY
        after = begins + WEEK
    else:
        begins = after - iteration.days * DAY
    zone = iteration.time_zone
    return Window(name=month.name, starts_at=midnight(begins, zone), ends_at=midnight(after, zone))


def coming_window(moment: datetime, iteration: Iteration) -> Window:
    """The first window that has not ended at that moment: the one under way, else the next."""
    return next(window for window in _windows(moment, iteration) if moment < window.ends_at)


def next_window(moment: datetime, iteration: Iteration) -> Window:
    """The first window that begins at that moment or later."""
    return next(window for window in _windows(moment, iteration) if moment <= window.starts_at)


def begun_window(moment: datetime, iteration: Iteration) -> Window:
    """The last window that has begun at that moment: the one under way, else the one before."""
    return list(takewhile(lambda window: window.starts_at <= moment, _windows(moment, iteration)))[-1]


def windows_between(start: datetime, end: datetime, iteration: Iteration) -> tuple[Window, ...]:
    """The windows that ``[start, end)`` touches, in order."""
    coming = dropwhile(lambda window: window.ends_at <= start, _windows(start, iteration))
    return tuple(takewhile(lambda window: window.starts_at < end, coming))


def _windows(moment: datetime, iteration: Iteration) -> Iterator[Window]:
    """All windows in order, from that of the month before the moment's: it has begun, and may not have ended."""
    zone = iteration.time_zone
    month = month_of(month_of(moment, zone).starts_at - DAY, zone)
    while True:
        yield window_of(month, iteration)
        month = month_of(month.ends_at, zone)
