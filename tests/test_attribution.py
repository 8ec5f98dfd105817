"""Every GPU-hour in one month, every cent in one sum."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.attribution import CENT, by_month, in_cents, total_of
from spillway.model import CostEntry
from spillway.months import month_of, months_between, named_month
from spillway.pricing import cost, gpu_hours
from spillway.testing.ledger_values import a_cost

TOKYO = "Asia/Tokyo"
START = datetime(2026, 3, 31, 13, tzinfo=UTC)
"""Two hours before the month ends in Tokyo."""


def booked(start: datetime, end: datetime, **fields: Any) -> CostEntry:
    """Two GPUs at 3 an hour."""
    price = Decimal(3)
    entry = {
        "gpus": 2,
        "price_per_gpu_hour": price,
        "gpu_hours": gpu_hours(2, start, end),
        "amount": cost(2, start, end, price),
        "started_at": start,
        "ended_at": end,
    }
    return a_cost(**(entry | fields))


def test_an_attempt_over_the_end_of_a_month_is_split_where_the_zone_has_midnight() -> None:
    parts = by_month(booked(START, START + timedelta(hours=6)), TOKYO)
    assert [(part.month.name, part.billed, part.metered) for part in parts] == [
        ("2026-03", Decimal(4), Decimal(12)),
        ("2026-04", Decimal(8), Decimal(24)),
    ]
    (whole,) = by_month(booked(START, START + timedelta(hours=6)), "UTC")
    assert (whole.month.name, whole.amount) == ("2026-03", Decimal(36))


def test_the_moment_of_the_boundary_belongs_to_the_month_that_begins() -> None:
    boundary = datetime(2026, 3, 31, 15, tzinfo=UTC)
    assert month_of(boundary, TOKYO).name == "2026-04"
    assert month_of(boundary - timedelta(microseconds=1), TOKYO).name == "2026-03"
    before, after = month_of(START, TOKYO), month_of(boundary, TOKYO)
    assert before.ends_at == after.starts_at == boundary
    assert boundary in after and boundary not in before
    (ended_there,) = by_month(booked(START, boundary), TOKYO)
    assert (ended_there.month.name, ended_there.billed) == ("2026-03", Decimal(4))


def test_a_pod_that_ended_in_the_second_that_it_began_in_is_part_of_one_month() -> None:
    (part,) = by_month(booked(START, START), TOKYO)
    assert (part.month.name, part.billed, part.amount) == ("2026-03", Decimal(0), Decimal(0))


def test_a_few_seconds_cost_something_and_never_less_than_nothing() -> None:
    parts = by_month(
        booked(datetime(2026, 3, 31, 14, 59, 58, tzinfo=UTC), START + timedelta(hours=2, seconds=1)), TOKYO
    )
    assert [part.billed > 0 for part in parts] == [True, True]


def test_hours_that_were_only_allocated_stay_in_the_month_in_which_they_were() -> None:
    entry = booked(START + timedelta(hours=3), START + timedelta(hours=4), reserved_at=START)
    parts = by_month(entry, TOKYO)
    assert [(part.month.name, part.allocated, part.billed) for part in parts] == [
        ("2026-03", Decimal(4), Decimal(0)),
        ("2026-04", Decimal(4), Decimal(2)),
    ]


def test_what_nobody_recorded_is_unknown_and_not_nothing() -> None:
    (part,) = by_month(booked(START, START + timedelta(hours=1)), TOKYO)
    assert (part.allocated, part.used) == (None, None)
    (part,) = by_month(booked(START, START + timedelta(hours=1), utilisation=Decimal("0.25")), TOKYO)
    assert part.used == Decimal("0.5")


def test_a_whole_month_of_a_gpu_bears_its_whole_fixed_cost_however_long_the_month_is() -> None:
    for name in ("2026-02", "2026-03", "2026-10"):  # 28 and 31 days, and both changes of the clocks
        month = named_month(name, "Europe/Berlin")
        assert month is not None
        entry = booked(month.starts_at, month.ends_at, fixed_cost_per_gpu_month=Decimal(730))
        (part,) = by_month(entry, "Europe/Berlin")
        assert part.fixed == Decimal(1460)
        assert part.amount == entry.amount + 1460


@pytest.mark.parametrize("name", ["2026-13", "26-03", "2026-3", "March", "", "2026-03-01"])
def test_what_names_no_month_is_none(name: str) -> None:
    assert named_month(name, "UTC") is None


moments = st.timedeltas(timedelta(days=-400), timedelta(days=400)).map(lambda apart: START + apart)


@given(
    start=moments,
    lasts=st.timedeltas(timedelta(0), timedelta(days=100)),
    zone=st.sampled_from(["UTC", TOKYO, "America/New_York", "Europe/Berlin", "Pacific/Kiritimati"]),
    price=st.decimals(0, 100, places=3),
)
def test_the_months_of_a_booking_are_together_exactly_the_booking(
    start: datetime, lasts: timedelta, zone: str, price: Decimal
) -> None:
    end = start + lasts
    entry = booked(start, end, price_per_gpu_hour=price, amount=cost(2, start, end, price), reserved_at=start)
    parts = by_month(entry, zone)
    assert total_of([part.metered for part in parts]) == entry.amount
    assert sum(part.metered >= 0 for part in parts) == len(parts)
    assert [part.month for part in parts] == list(months_between(start, end, zone))
    apart = abs(total_of([part.billed for part in parts]) - entry.gpu_hours)
    assert apart < Decimal("1e-30")


@given(amounts=st.lists(st.decimals(0, 10**6, places=7), max_size=12))
def test_amounts_in_cents_add_up_to_their_sum_in_cents(amounts: list[Decimal]) -> None:
    shown = in_cents(amounts)
    assert sum(shown, Decimal(0)) == total_of(amounts).quantize(CENT)
    assert all(abs(cents - amount) < CENT for cents, amount in zip(shown, amounts, strict=True))


def test_thirds_of_a_euro_are_a_euro() -> None:
    assert in_cents([Decimal(1) / 3] * 3) == (Decimal("0.34"), Decimal("0.33"), Decimal("0.33"))
