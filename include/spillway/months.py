"""Calendar months of one zone, half-open: the moment that ends one belongs to the next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from zoneinfo import ZoneInfo

from spillway.pricing import gpu_hours

_NAME = re.compile(r"(?P<year>2\d{3})-(?P<month>0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a month, or all of it: ``[starts_at, ends_at)`` in UTC. ``name`` is the month's, ``2026-03``."""

    name: str
    starts_at: datetime
    ends_at: datetime

    def __contains__(self, moment: datetime) -> bool:
        return self.starts_at <= moment < self.ends_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Month(Window):
    """A month of a zone."""

    @property
    def hours(self) -> Decimal:
        """How long it is; a month in which a zone changes its clocks has an hour more or less."""
        return gpu_hours(1, self.starts_at, self.ends_at)


def month_of(moment: datetime, zone: str) -> Month:
    """The month that a moment belongs to, by the clocks of a zone such as ``Europe/Berlin``."""
    local = moment.astimezone(ZoneInfo(zone))
    return _month(local.year, local.month, zone)


def named_month(name: str, zone: str) -> Month | None:
    """The month of a name such as ``2026-03``; None where that is not the name of one."""
    found = _NAME.fullmatch(name)
    return _month(int(found["year"]), int(found["month"]), zone) if found else None


def months_between(start: datetime, end: datetime, zone: str) -> tuple[Month, ...]:
    """The months that ``[start, end)`` touches, in order; the one of ``start`` where nothing lies between."""
    found = [month_of(start, zone)]
    while found[-1].ends_at < end:
        found.append(month_of(found[-1].ends_at, zone))
    return tuple(found)


def midnight(day: date, zone: str) -> datetime:
    """The first moment of a day of a zone, in UTC; the day may begin later than at 00:00, where the clocks change."""
    return datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)


def _month(year: int, month: int, zone: str) -> Month:
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    first, after = date(year, month, 1), date(*following, 1)
    return Month(name=f"{year:04}-{month:02}", starts_at=midnight(first, zone), ends_at=midnight(after, zone))
