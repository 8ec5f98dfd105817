from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from functools import reduce
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.model import CostEntry
from spillway.months import bounds, month_of, split
from spillway.testing.ledger_values import a_cost

TOKYO = ZoneInfo("Asia/Tokyo")
BERLIN = ZoneInfo("Europe/Berlin")
MARCH, APRIL = date(2026, 3, 1), date(2026, 4, 1)
BOUNDARY = datetime(2026, 3, 31, 15, 0, tzinfo=UTC)
"""Where April begins in Tokyo."""


def _entry(start: datetime, duration: timedelta) -> CostEntry:
    hours = Decimal(duration // timedelta(microseconds=1)) / Decimal(3_600_000_000)
    return a_cost(started_at=start, ended_at=start + duration, gpu_hours=hours, amount=hours * Decimal("2.50"))


def test_a_job_over_a_boundary_is_in_both_months_by_its_time() -> None:
    entry = _entry(BOUNDARY - timedelta(hours=2), timedelta(hours=6))
    assert split(entry, TOKYO) == (
        (MARCH, replace(entry, ended_at=BOUNDARY, gpu_hours=Decimal(2), amount=Decimal(5))),
        (APRIL, replace(entry, started_at=BOUNDARY, gpu_hours=Decimal(4), amount=Decimal(10))),
    )
    assert split(entry, ZoneInfo("UTC")) == ((MARCH, entry),)


@pytest.mark.parametrize(
    ("start", "duration", "month"),
    [
        (BOUNDARY - timedelta(hours=1), timedelta(hours=1), MARCH),
        (BOUNDARY, timedelta(hours=1), APRIL),
        (BOUNDARY, timedelta(0), APRIL),
        (BOUNDARY - timedelta(microseconds=1), timedelta(microseconds=1), MARCH),
    ],
    ids=["ends at the boundary", "begins at it", "is only that instant", "is shorter than anything"],
)
def test_a_job_beside_a_boundary_is_whole_in_one_month(start: datetime, duration: timedelta, month: date) -> None:
    entry = _entry(start, duration)
    assert split(entry, TOKYO) == ((month, entry),)


@pytest.mark.parametrize("zone", [TOKYO, BERLIN, ZoneInfo("America/Sao_Paulo")], ids=str)
def test_each_month_begins_where_the_one_before_ends(zone: ZoneInfo) -> None:
    months = [date(year, month, 1) for year in (2025, 2026) for month in range(1, 13)]
    for month, following in pairwise(months):
        start, end = bounds(month, zone)
        assert end == bounds(following, zone)[0]
        assert (month_of(start, zone), month_of(end - timedelta(microseconds=1), zone)) == (month, month)
        assert month_of(end, zone) == following


def test_a_month_with_a_clock_change_has_its_real_length() -> None:
    start, end = bounds(MARCH, BERLIN)
    assert end - start == timedelta(days=31) - timedelta(hours=1)


@given(
    begins=st.timedeltas(timedelta(0), timedelta(days=700)),
    duration=st.timedeltas(timedelta(0), timedelta(days=100)),
    gpus=st.integers(1, 64),
    zone=st.sampled_from([TOKYO, BERLIN]),
)
def test_the_parts_make_up_the_whole_and_none_is_negative(
    begins: timedelta, duration: timedelta, gpus: int, zone: ZoneInfo
) -> None:
    entry = replace(_entry(BOUNDARY + begins, duration), gpus=gpus)
    parts = [part for _, part in split(entry, zone)]
    exact = Context(prec=100)
    assert reduce(exact.add, (part.amount for part in parts)) == entry.amount
    assert reduce(exact.add, (part.gpu_hours for part in parts)) == entry.gpu_hours
    assert all(part.amount >= 0 and part.ended_at >= part.started_at for part in parts)
    assert [part.started_at for part in parts[1:]] == [part.ended_at for part in parts[:-1]]
