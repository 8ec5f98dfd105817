"""A limit of bytes a second, with a clock of its own."""

from __future__ import annotations

import pytest

from spillway.stores.rate import RateLimit
from spillway.testing.slept_time import SleptTime


@pytest.fixture
def clock() -> SleptTime:
    return SleptTime()


@pytest.fixture
def limit(clock: SleptTime) -> RateLimit:
    return RateLimit(1000, clock=clock.monotonic, sleep=clock.sleep)


@pytest.mark.parametrize("size", [1, 100, 1000, 20_000])
def test_over_a_longer_time_no_more_than_the_rate_passes(clock: SleptTime, limit: RateLimit, size: int) -> None:
    for _ in range(40_000 // size):
        limit.take(size)
    limit.take(0)
    assert clock.now - 100 == pytest.approx(40 - 0.25)


def test_an_idle_link_saves_up_a_quarter_of_a_second_and_no_more(clock: SleptTime, limit: RateLimit) -> None:
    limit.take(10)
    clock.now += 3600
    began = clock.now
    limit.take(250)
    assert clock.now == began
    limit.take(500)
    limit.take(0)
    assert clock.now - began == pytest.approx(0.5)


@pytest.mark.parametrize(("rate", "seconds"), [(10_000, 0.1 + 1.0), (500, 2.0 + 20.0)], ids=["faster", "slower"])
def test_a_rate_that_is_changed_holds_for_what_was_taken_before_too(
    clock: SleptTime, limit: RateLimit, rate: float, seconds: float
) -> None:
    limit.take(1250)
    limit.bytes_per_second = rate
    began = clock.now
    limit.take(10_000)
    limit.take(0)
    assert clock.now - began == pytest.approx(seconds)


def test_whoever_waits_on_a_slow_link_goes_on_as_soon_as_it_is_fast_again(clock: SleptTime, limit: RateLimit) -> None:
    def recover() -> None:
        if clock.now >= 103:
            limit.bytes_per_second = 1_000_000

    clock.after_sleep = recover
    limit.take(300_000)
    limit.take(1)
    assert clock.now - 100 == pytest.approx(3 + (300_000 - 250 - 3000) / 1_000_000)
    assert max(clock.pauses) <= 1, "nobody is out of reach for long"


def test_what_waits_for_its_turn_passes_bit_by_bit(clock: SleptTime, limit: RateLimit) -> None:
    limit.take(5250)
    seen = []
    for _ in range(8):
        seen.append(limit.passed_bytes)
        clock.now += 1
    assert seen == pytest.approx([250, 1250, 2250, 3250, 4250, 5250, 5250, 5250])


@pytest.mark.parametrize("rate", [0, -1, float("nan")])
def test_a_rate_that_lets_nothing_through_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="expected a rate above 0"):
        RateLimit(rate)
