"""When the off-peak hours of a pool are, and what they cost.

Hours are those of the clocks of a zone, half-open. In the night that a zone changes its clocks a moment is within them
only where no reading of the clocks says otherwise: nothing is taken for cheap that may not be.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from spillway.model import Billing, NodePool, OffPeak

DAY = timedelta(days=1)


class Window(NamedTuple):
    """``[begins_at, ends_at)`` in UTC."""

    begins_at: datetime
    ends_at: datetime

    def holds(self, begins_at: datetime, lasting: timedelta) -> bool:
        """Whether all of what begins then lies in it."""
        return self.begins_at <= begins_at and begins_at + lasting <= self.ends_at


def windows(hours: OffPeak, now: datetime) -> tuple[Window, ...]:
    """The window of now, if there is one, and those of the next two days, in their order."""
    return _windows(hours.begins, hours.ends, hours.time_zone, now)


@lru_cache(maxsize=100)
def _windows(begins: timedelta, ends: timedelta, time_zone: str, now: datetime) -> tuple[Window, ...]:
    """Remembered, as a decision asks for those of now for every place and many pools have the same hours."""
    zone = ZoneInfo(time_zone)
    today = now.astimezone(zone).date()
    over_midnight = DAY if ends <= begins else timedelta()
    days = [today + number * DAY for number in (-1, 0, 1, 2)]
    found = (Window(max(_readings(day, begins, zone)), min(_readings(day, ends + over_midnight, zone))) for day in days)
    return tuple(window for window in found if window.begins_at < window.ends_at and now < window.ends_at)


def off_peak_price(pool: NodePool, billing: Billing) -> Decimal | None:
    """What an off-peak hour costs there; None where nobody says another price than the usual one, or all are paid."""
    return None if pool.off_peak is None or pool.is_paid(billing) else pool.off_peak.prices_per_hour.get(billing)


def cheaper_from(pool: NodePool, billing: Billing, now: datetime, lasting: timedelta | None) -> datetime | None:
    """From when on a job that lasts so long has the off-peak price for all of its time; None where it never has.

    Of a job that does not say how long it trains nobody knows that it ends within the hours.
    """
    if pool.off_peak is None or lasting is None or off_peak_price(pool, billing) is None:
        return None
    starts = (
        max(now, window.begins_at)
        for window in windows(pool.off_peak, now)
        if window.holds(max(now, window.begins_at), lasting)
    )
    return next(starts, None)


def off_peak_from(pool: NodePool, now: datetime) -> datetime | None:
    """From when on it is off-peak there, whatever it costs; now where it is so already."""
    coming = windows(pool.off_peak, now) if pool.off_peak is not None else ()
    return max(now, coming[0].begins_at) if coming else None


def _readings(day: date, since_midnight: timedelta, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Both moments that the clocks of a zone may mean by a time; the same one on most days."""
    whole, rest = divmod(since_midnight, DAY)
    written = datetime.combine(day + whole * DAY, time()) + rest
    first, second = (written.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return first, second
