"""Where one month ends and the next begins, in one named time zone; the only place that knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from zoneinfo import ZoneInfo

from spillway.model import CostEntry

_EXACT = Context(prec=100)
_MICROSECOND = timedelta(microseconds=1)


def month_of(moment: datetime, zone: ZoneInfo) -> date:
    """The first day of the month that the moment belongs to; the instant of a boundary belongs to the new month."""
    return moment.astimezone(zone).date().replace(day=1)


def bounds(month: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The first moment of the month and that of the next one, in UTC."""
    following = (month.replace(day=1) + timedelta(days=31)).replace(day=1)
    start, end = (datetime(day.year, day.month, 1, tzinfo=zone).astimezone(UTC) for day in (month, following))
    return start, end


def split(entry: CostEntry, zone: ZoneInfo) -> tuple[tuple[date, CostEntry], ...]:
    """A booking cut at every month's boundary, oldest part first, each with its month.

    Hours and money are shared by time; the last part takes what is left, so that the parts make up the whole exactly.
    """
    parts: list[tuple[date, CostEntry]] = []
    rest = entry
    while True:
        month = month_of(rest.started_at, zone)
        _, boundary = bounds(month, zone)
        if rest.ended_at <= boundary:
            return (*parts, (month, rest))
        part = _first_part(rest, boundary)
        parts.append((month, part))
        rest = replace(
            rest,
            started_at=boundary,
            gpu_hours=_EXACT.subtract(rest.gpu_hours, part.gpu_hours),
            amount=_EXACT.subtract(rest.amount, part.amount),
        )


def _first_part(entry: CostEntry, boundary: datetime) -> CostEntry:
    share, whole = (Decimal((end - entry.started_at) // _MICROSECOND) for end in (boundary, entry.ended_at))
    return replace(
        entry,
        ended_at=boundary,
        gpu_hours=_share(entry.gpu_hours, share, whole),
        amount=_share(entry.amount, share, whole),
    )


def _share(value: Decimal, share: Decimal, whole: Decimal) -> Decimal:
    """``value * share / whole`` to 20 decimal places, far below a cent and short enough that sums stay exact."""
    return _EXACT.quantize(_EXACT.divide(_EXACT.multiply(value, share), whole), Decimal("1e-20"))
