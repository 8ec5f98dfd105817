"""How long a transfer between sites takes and what it costs; what nobody knows is unknown, and never free."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.lines import BYTES_PER_GIGABIT, bytes_per_second, transfer
from spillway.model import Link, TransferEstimate
from spillway.testing.builders import cloud_cluster, onprem_cluster

ONPREM = onprem_cluster(link=Link(bandwidth_gbps=10))
CLOUD = cloud_cluster(link=Link(bandwidth_gbps=8, egress_price_per_gib=Decimal("0.02")))
TEBIBYTE = 1 << 40


def test_a_transfer_is_as_fast_as_the_slower_line_and_costs_what_the_source_takes_for_it() -> None:
    there = transfer(TEBIBYTE, ONPREM, CLOUD, {})
    assert there == TransferEstimate(size_bytes=TEBIBYTE, duration=timedelta(seconds=TEBIBYTE / 1e9), egress=Decimal(0))
    assert transfer(TEBIBYTE, CLOUD, ONPREM, {}).egress == Decimal("20.48")
    assert transfer(TEBIBYTE, CLOUD, ONPREM, {}).duration == there.duration


def test_a_terabyte_takes_a_quarter_of_an_hour_on_ten_gigabit() -> None:
    fast = replace(CLOUD, link=Link(bandwidth_gbps=10))
    duration = transfer(10**12, ONPREM, fast, {}).duration
    assert duration is not None
    assert timedelta(minutes=13) < duration < timedelta(minutes=15)


def test_the_measured_rate_of_the_line_comes_before_the_declared_one() -> None:
    assert bytes_per_second(CLOUD, {"cloud": 5e6, "onprem": 1}) == 5e6
    assert transfer(10**9, ONPREM, CLOUD, {"cloud": 5e6}).duration == timedelta(seconds=200)


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_a_line_that_was_measured_to_stand_still_was_not_measured(rate: float) -> None:
    assert bytes_per_second(CLOUD, {"cloud": rate}) == 8 * BYTES_PER_GIGABIT


def test_what_is_there_costs_nothing_and_what_nobody_knows_is_unknown() -> None:
    nothing = TransferEstimate(size_bytes=0, duration=timedelta(), egress=Decimal(0))
    assert transfer(0, CLOUD, ONPREM, {}) == nothing
    assert transfer(None, CLOUD, CLOUD, {}) == nothing
    assert transfer(None, CLOUD, ONPREM, {}) == TransferEstimate(size_bytes=None, duration=None, egress=None)
