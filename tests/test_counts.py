"""Numbers of things in sentences."""

from __future__ import annotations

from decimal import Decimal

from spillway.errors.counts import counted


def test_one_is_one_thing_and_everything_else_is_several() -> None:
    assert [counted(number, "GPU") for number in (0, 1, 2, 0.5, Decimal(1), Decimal("1.5"))] == [
        "0 GPUs", "1 GPU", "2 GPUs", "0.5 GPUs", "1 GPU", "1.5 GPUs",
    ]  # fmt: skip
    assert [counted(number, "try", "tries", form=",") for number in (1, 1200)] == ["1 try", "1,200 tries"]
