"""Off-peak hours by the clocks of a zone, through the nights in which these change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest

from spillway.model import Billing, OffPeak
from spillway.offpeak import Window, cheaper_from, windows
from spillway.pricing import price_of_run
from spillway.testing.builders import cloud_pool

HOUR = timedelta(hours=1)


def hours(begins: float, ends: float, zone: str = "Europe/Berlin") -> OffPeak:
    return OffPeak(begins=begins * HOUR, ends=ends * HOUR, time_zone=zone, prices_per_hour={Billing.SPOT: Decimal(2)})


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


WINDOWS: dict[str, tuple[OffPeak, datetime, Window]] = {
    "the coming night": (hours(22, 6), utc(1, 5, 12), Window(utc(1, 5, 21), utc(1, 6, 5))),
    "this night": (hours(22, 6), utc(1, 6, 4, 59), Window(utc(1, 5, 21), utc(1, 6, 5))),
    "its end belongs to the day": (hours(22, 6), utc(1, 6, 5), Window(utc(1, 6, 21), utc(1, 7, 5))),
    "a day that began": (hours(0, 8, "Asia/Shanghai"), utc(1, 5, 17), Window(utc(1, 5, 16), utc(1, 6, 0))),
    "a night of seven hours": (hours(22, 6), utc(3, 28, 12), Window(utc(3, 28, 21), utc(3, 29, 4))),
    "a night of nine hours": (hours(22, 6), utc(10, 24, 12), Window(utc(10, 24, 20), utc(10, 25, 5))),
    "a beginning that comes twice": (hours(2.5, 6), utc(10, 24, 12), Window(utc(10, 25, 1, 30), utc(10, 25, 5))),
    "an end that comes twice": (hours(22, 2.5), utc(10, 24, 12), Window(utc(10, 24, 20), utc(10, 25, 0, 30))),
    "an hour that does not come": (hours(2, 3), utc(3, 29, 0), Window(utc(3, 30, 0), utc(3, 30, 1))),
}  # fmt: skip


@pytest.mark.parametrize(("declared", "now", "first"), WINDOWS.values(), ids=WINDOWS)
def test_off_peak_hours_are_those_of_the_clocks_of_their_zone(declared: OffPeak, now: datetime, first: Window) -> None:
    found = windows(declared, now)
    assert found[0] == first
    assert all(before.ends_at <= after.begins_at for before, after in pairwise(found))


@pytest.mark.parametrize(
    ("now", "lasting", "begins"),
    [
        (utc(1, 5, 12), 8 * HOUR, utc(1, 5, 21)),
        (utc(1, 6, 1), 4 * HOUR, utc(1, 6, 1)),
        (utc(1, 6, 1), 5 * HOUR, utc(1, 6, 21)),
        (utc(1, 5, 12), 9 * HOUR, None),
        (utc(1, 6, 1), None, None),
    ],
    ids=["the whole night", "the rest of it", "more than its rest", "more than a night", "nobody knows how long"],
)
def test_a_job_is_cheaper_where_all_of_it_lies_in_the_hours(
    now: datetime, lasting: timedelta | None, begins: datetime | None
) -> None:
    pool = cloud_pool(off_peak=hours(22, 6))
    assert cheaper_from(pool, Billing.SPOT, now, lasting) == begins
    assert price_of_run(pool, Billing.SPOT, now, lasting) == (2 if begins == now else Decimal("2.8"))
    assert price_of_run(pool, Billing.ON_DEMAND, now, lasting) == 8
