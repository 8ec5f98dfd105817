"""Kubernetes quantities, as its API writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spillway.clouds.quantities import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", "2"),
        ("500m", "0.5"),
        ("1.5Gi", "1610612736"),
        ("3k", "3000"),
        (4, "4"),
        ("1Ti", "1099511627776"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("2E", "2000000000000000000"),
        ("100000000n", "0.1"),
    ],
)
def test_a_quantity_is_exact(text: object, value: str) -> None:
    assert quantity(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "one", "1GB", "-1", "1 Gi", ".", "e3", "1e", "NaN"])
def test_a_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a quantity"):
        quantity(text)
