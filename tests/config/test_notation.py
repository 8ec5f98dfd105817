"""Durations, shares and prices as people write them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from spillway.config.notation import duration, fraction, prices, share
from spillway.model import Billing


@pytest.mark.parametrize(
    ("written", "part"),
    [
        (0.5, "0.5"),
        ("50%", "0.5"),
        ("1/2", "0.5"),
        ("1/7", "0.142"),
        ("2/3", "0.666"),
        ("1 / 8", "0.125"),
        (0.001, "0.001"),
    ],
)
def test_a_part_of_a_gpu_is_read_to_its_thousandth(written: Any, part: str) -> None:
    assert fraction(written) == Decimal(part)


@pytest.mark.parametrize(
    "written", [0, 1, "1/1", "3/2", "0.0009", "1/0", "1/2/3", "half", "-1/2", "/2", None, True, []]
)
def test_no_part_a_whole_one_and_more_are_no_part_of_a_gpu(written: Any) -> None:
    with pytest.raises(PydanticCustomError, match=r"^expected a "):
        fraction(written)


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("30s", timedelta(seconds=30)),
        ("0.5s", timedelta(milliseconds=500)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("1h30m", timedelta(minutes=90)),
        ("2d", timedelta(days=2)),
        ("PT30S", timedelta(seconds=30)),
        ("P1DT2H", timedelta(hours=26)),
        ("P2W", timedelta(days=14)),
        ("0s", timedelta(0)),
        ("3650d", timedelta(days=3650)),
    ],
)
def test_a_duration_is_read_with_its_unit(written: str, length: timedelta) -> None:
    assert duration(written) == length


@pytest.mark.parametrize(
    "written", [30, "30", "", "P", "PT", "-5m", "5 m", "m", "1y", "3650d1s", "9999999999d", None, True, []]
)
def test_anything_else_is_no_duration(written: Any) -> None:
    with pytest.raises(PydanticCustomError, match=r"^expected a duration"):
        duration(written)


@pytest.mark.parametrize(("written", "part"), [("30%", "0.3"), (0.3, "0.3"), (1, "1"), ("0%", "0"), ("0.25", "0.25")])
def test_a_share_is_a_part_or_a_percentage(written: Any, part: str) -> None:
    assert share(written) == Decimal(part)


@pytest.mark.parametrize("written", [30, -0.1, "101%", "%", "thirty", float("nan"), float("inf"), None, True, {}])
def test_anything_else_is_no_share(written: Any) -> None:
    with pytest.raises(PydanticCustomError, match=r"^expected a share between 0 and 1, or 0% and 100%, got "):
        share(written)


@pytest.mark.parametrize(
    ("spot", "price"),
    [
        (2.4, "2.4"),
        ("2.40", "2.4"),
        ({"discount": "60%"}, "3.2"),
        ({"discount": 0.4}, "4.8"),
        ({"of_on_demand": "20%"}, "1.6"),
        ({"of_on_demand": 0.4}, "3.2"),
    ],
)
def test_a_spot_price_is_an_amount_or_relative_to_on_demand_in_either_notation(spot: Any, price: str) -> None:
    assert prices({"on-demand": 8.0, "spot": spot}) == {Billing.ON_DEMAND: Decimal(8), Billing.SPOT: Decimal(price)}


def test_an_owned_gpu_may_cost_nothing() -> None:
    assert prices({"owned": 0}) == {Billing.OWNED: Decimal(0)}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"spot": {"discount": "30%"}}, "spot: is relative to the on-demand price, which must be given as an amount"),
        ({"on-demand": {"discount": "30%"}}, "on-demand: expected an amount, or for 'reserved' and 'spot' also"),
        ({"on-demand": 8, "spot": {"discount": "30%", "of_on_demand": 0.3}}, "spot: expected an amount, or for"),
        ({"on-demand": 8, "spot": {"discount": "100%"}}, r"spot: expected a price above 0 \(only 'owned' may be 0\)"),
        ({"on-demand": 8, "spot": {"discount": 30}}, "spot: expected a share between 0 and 1"),
        ({"on-demand": 0}, r"on-demand: expected a price above 0 \(only 'owned' may be 0\), got 0"),
        ({"on-demand": -1}, "on-demand: expected an amount of at least 0, got -1"),
        ({"on-demand": float("nan")}, "on-demand: expected an amount of at least 0, got nan"),
        ({"on-demand": None}, "on-demand: expected an amount of at least 0, got None"),
        ({"on-demand": "cheap", "spot": {"discount": 0.3}}, "on-demand: expected an amount of at least 0, got 'cheap'"),
        ({"ondemand": 8}, "unknown billing type 'ondemand'; .* Did you mean 'on-demand'"),
        (8.0, "expected at least one price by billing type"),
    ],
)
def test_a_price_that_cannot_be_believed_is_refused(written: Any, problem: str) -> None:
    with pytest.raises(PydanticCustomError, match=f"^{problem}"):
        prices(written)
