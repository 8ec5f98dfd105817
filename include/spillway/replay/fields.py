"""Fields of a trace as values; what is wrong with one is told by a ``ValueError``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

ABSENT = frozenset({"", "None", "none", "null", "NULL", "NA", "N/A"})
"""How the known formats write that there is no value. NaN is none of them: there it is a fault."""

MOST = 1_000_000
"""More GPUs, nodes or GiB than this no job has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How a trace writes moments: as seconds after ``epoch``, or as text, of ``zone`` where the text names none."""

    epoch: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    zone: tzinfo = UTC

    def moment(self, column: str, text: str, *, since: datetime | None = None) -> datetime:
        """The moment, in UTC; a text that two moments may have (clocks go back) is the first of them.

        Args:
            since: it is the second one where the first is before that.
        """
        try:
            return self.epoch + timedelta(seconds=_float(text))
        except OverflowError:
            raise ValueError(f"{column}: {text} seconds are no moment") from None
        except ValueError:
            pass
        try:
            told = datetime.fromisoformat(text)
            told = told if told.tzinfo else told.replace(tzinfo=self.zone)
            first = told.astimezone(UTC)
            return first if since is None or first >= since else max(first, told.replace(fold=1).astimezone(UTC))
        except (ValueError, OverflowError):
            raise ValueError(
                f"{column}: expected a moment such as 2026-03-01T12:00:00Z, or seconds, got '{text}'"
            ) from None

    def optional(self, row: Mapping[str, str], column: str, *, since: datetime | None = None) -> datetime | None:
        text = row.get(column, "")
        return None if text in ABSENT else self.moment(column, text, since=since)


def duration(row: Mapping[str, str], column: str) -> timedelta | None:
    """Seconds, not fewer than none; None where the field is absent."""
    text = row.get(column, "")
    if text in ABSENT:
        return None
    seconds = number(column, text)
    if seconds < 0:
        raise ValueError(f"{column}: expected seconds, not fewer than 0, got '{text}'")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"{column}: {text} seconds are no duration") from None


def whole(row: Mapping[str, str], column: str) -> int | None:
    """A whole number from 0 to ``MOST`` (``8`` or ``8.0``); None where the field is absent."""
    text = row.get(column, "")
    if text in ABSENT:
        return None
    value = number(column, text)
    if not value.is_integer():
        raise ValueError(f"{column}: expected a whole number, got '{text}'")
    if not 0 <= value <= MOST:
        raise ValueError(f"{column}: expected a number from 0 to {MOST:,}, got '{text}'")
    return int(value)


def amount(row: Mapping[str, str], column: str) -> float | None:
    """A number from 0 to ``MOST``; None where the field is absent."""
    text = row.get(column, "")
    if text in ABSENT:
        return None
    value = number(column, text)
    if not 0 <= value <= MOST:
        raise ValueError(f"{column}: expected a number from 0 to {MOST:,}, got '{text}'")
    return value


def number(column: str, text: str) -> float:
    try:
        value = _float(text)
    except ValueError:
        raise ValueError(f"{column}: expected a number, got '{text}'") from None
    if not math.isfinite(value):
        raise ValueError(f"{column}: expected a number, got '{text}'")
    return value


def _float(text: str) -> float:
    """The number of a text, where it is one to other readers than Python too (``1_000`` is not)."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def text(row: Mapping[str, str], column: str) -> str | None:
    value = row.get(column, "")
    return None if value in ABSENT else value
