"""Prices that can be believed, and exact costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.model import Billing, CostEntry
from spillway.pricing import cost, gpu_hours, hourly_price, prolonged
from spillway.testing.builders import NOW, node_pool


@pytest.mark.parametrize(
    ("billing", "declared", "price"),
    [
        (Billing.OWNED, "2.5", "2.5"),
        (Billing.OWNED, "0", "0"),
        (Billing.SPOT, "0", None),
        (Billing.SPOT, "-1", None),
        (Billing.OWNED, "-1", None),
        (Billing.SPOT, "NaN", None),
        (Billing.SPOT, "sNaN", None),
        (Billing.SPOT, "Infinity", None),
    ],
)
def test_only_a_price_that_can_be_believed_is_one(billing: Billing, declared: str, price: str | None) -> None:
    pool = node_pool(prices_per_gpu_hour={billing: Decimal(declared)})
    assert hourly_price(pool, billing) == (None if price is None else Decimal(price))


def test_a_billing_type_that_is_not_declared_has_no_price() -> None:
    assert hourly_price(node_pool(), Billing.SPOT) is None


@pytest.mark.parametrize(
    ("gpus", "lasted", "price", "amount"),
    [
        (8, timedelta(hours=1), "2.5", "20"),
        (1, timedelta(minutes=20), "3", "1"),
        (3, timedelta(seconds=1), "1200", "1"),
        (1, timedelta(microseconds=1), "3600000000", "1"),
        (7, timedelta(days=3650), "0.1", "61320"),
        (4, timedelta(0), "8", "0"),
    ],
)
def test_a_cost_is_exact(gpus: int, lasted: timedelta, price: str, amount: str) -> None:
    assert cost(gpus, NOW, NOW + lasted, Decimal(price)) == Decimal(amount)


def test_gpu_hours_count_every_gpu() -> None:
    assert gpu_hours(8, NOW, NOW + timedelta(minutes=90)) == Decimal(12)


def test_a_booking_with_another_end_keeps_its_price() -> None:
    hour = CostEntry(
        cluster="onprem",
        pod_uid="u",
        attempt="r-1",
        department="research",
        job="digits",
        billing=Billing.OWNED,
        gpus=Decimal(4),
        gpu_hours=Decimal(4),
        price_per_gpu_hour=Decimal("2.5"),
        amount=Decimal(10),
        started_at=NOW,
        ended_at=NOW + timedelta(hours=1),
    )
    longer = prolonged(hour, NOW + timedelta(hours=3))
    assert longer == replace(hour, ended_at=NOW + timedelta(hours=3), gpu_hours=Decimal(12), amount=Decimal(30))
    assert prolonged(longer, hour.ended_at) == hour


def test_an_end_before_the_start_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected an end after the start 2026-01-05T12:00:00\+00:00, got 2026"):
        cost(1, NOW, NOW - timedelta(seconds=1), Decimal(1))
