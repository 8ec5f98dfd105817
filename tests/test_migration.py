"""How long a move takes, and whether it is worth it; what is unknown is said and speaks for nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.migration import Advice, MoveFacts, advise, estimate, saving, told

MIB = 1 << 20
KNOWN = MoveFacts(
    image_bytes=200 * MIB,
    dataset_bytes=0,
    missing_checkpoint_bytes=100 * MIB,
    checkpoint_bytes=50 * MIB,
    bandwidth_bytes_per_second=10 * MIB,
    flush=timedelta(seconds=4),
    grace=timedelta(seconds=30),
    restart=timedelta(seconds=20),
    seconds_per_step=2.0,
    steps_at_risk=7,
    steps_left=1000,
    steps_to_checkpoint=3,
)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def test_the_way_to_the_first_resumed_step_is_the_sum_of_its_terms() -> None:
    found = estimate(KNOWN)
    assert found.beforehand == {"image": seconds(20), "dataset": seconds(0), "checkpoints": seconds(10)}
    pause = {"flush": seconds(4), "last_checkpoint": seconds(5), "restart": seconds(20), "lost_steps": seconds(0)}
    assert found.pause == pause
    assert (found.known, found.known_pause, found.unknown) == (seconds(59), seconds(29), ())


def test_image_and_dataset_come_over_the_lines_to_their_homes() -> None:
    found = estimate(
        replace(KNOWN, dataset_bytes=60 * MIB, image_bytes_per_second=2 * MIB, dataset_bytes_per_second=MIB)
    )
    assert found.beforehand == {"image": seconds(100), "dataset": seconds(60), "checkpoints": seconds(10)}
    unmeasured = estimate(replace(KNOWN, bandwidth_bytes_per_second=None, image_bytes_per_second=2 * MIB))
    assert unmeasured.unknown == ("checkpoints", "last_checkpoint")


def test_steps_are_lost_where_the_last_checkpoint_does_not_fit_the_grace() -> None:
    assert estimate(replace(KNOWN, grace=seconds(4))).pause["lost_steps"] == seconds(14)
    assert estimate(replace(KNOWN, grace=seconds(4), steps_at_risk=0)).pause["lost_steps"] == seconds(0)
    assert estimate(replace(KNOWN, grace=None)).pause["lost_steps"] is None


@pytest.mark.parametrize(
    ("missing", "term"),
    [
        ("image_bytes", "image"),
        ("dataset_bytes", "dataset"),
        ("missing_checkpoint_bytes", "checkpoints"),
        ("checkpoint_bytes", "last_checkpoint"),
        ("restart", "restart"),
        ("flush", "flush"),
    ],
)
def test_an_unknown_term_is_unknown_and_not_zero(missing: str, term: str) -> None:
    found = estimate(replace(KNOWN, **{missing: None}))
    assert term in found.unknown
    assert f"{term} unknown" in told(found)
    assert found.known < estimate(KNOWN).known or term == "dataset"


def test_nothing_known_says_so() -> None:
    found = estimate(MoveFacts())
    assert len(found.unknown) == 7
    assert found.known == timedelta()
    assert advise(MoveFacts(), found).advice is Advice.MOVE
    assert "not known: image, dataset" in advise(MoveFacts(), found).reason


ADVICE = {
    "far from its end": (KNOWN, Advice.MOVE),
    "over before it has moved": (replace(KNOWN, steps_left=29), Advice.STAY),
    "one step more than that": (replace(KNOWN, steps_left=30), Advice.MOVE),
    "a checkpoint soon that would keep what is lost": (replace(KNOWN, grace=seconds(3)), Advice.WAIT),
    "a checkpoint later than what is lost": (replace(KNOWN, grace=seconds(3), steps_to_checkpoint=8), Advice.MOVE),
    "nobody knows when the next one is": (replace(KNOWN, grace=seconds(3), steps_to_checkpoint=None), Advice.MOVE),
    "nobody knows how fast it is": (replace(KNOWN, seconds_per_step=None, steps_left=1), Advice.MOVE),
}


@pytest.mark.parametrize(("facts", "expected"), ADVICE.values(), ids=ADVICE)
def test_move_stay_or_wait_for_the_next_checkpoint(facts: MoveFacts, expected: Advice) -> None:
    assert advise(facts, estimate(facts)).advice is expected


TERABYTE = 10**12
PAID = replace(
    KNOWN,
    image_bytes=0,
    missing_checkpoint_bytes=0,
    checkpoint_bytes=0,
    bandwidth_bytes_per_second=1e9,
    flush=timedelta(minutes=6),
    grace=timedelta(minutes=7),
    restart=timedelta(minutes=12),
    seconds_per_step=36.0,
    steps_at_risk=0,
    steps_left=1000,  # ten hours
    units=Decimal(8),
    price_here=Decimal(8),
    price_there=Decimal("2.5"),
    egress_price_per_gib=Decimal("0.02"),
    brought_egress=Decimal(0),
)

# facts, what is saved by hand, the advice
BY_HAND = {
    # 8 * (5.5 * 10 - 8 * 0.1 - 2.5 * 0.2) = 8 * 53.7
    "home from the cloud with ten hours left": (PAID, "429.6", Advice.MOVE),
    # the other way: 8 * (-5.5 * 10 - 2.5 * 0.1 - 8 * 0.2)
    "to where it is dearer": (
        replace(PAID, price_here=Decimal("2.5"), price_there=Decimal(8)),
        "-454.8",
        Advice.STAY,
    ),
    # 100 GiB now and 100 GiB last at 0.02 are 4.0; 8 * (1 * 10 - 8 * 0.1 - 7 * 0.2) = 62.4; for the
    # 107.3741824 s that it trains on while the first are brought nothing is saved: 8 * 1 * 107.3741824 / 3600
    "a small difference, a large checkpoint": (
        replace(PAID, price_there=Decimal(7), missing_checkpoint_bytes=100 << 30, checkpoint_bytes=100 << 30),
        "58.1613907",
        Advice.MOVE,
    ),
    # half an hour left: 8 * (0.5 * 0.5 - 8 * 0.1 - 7.5 * 0.2) = -16.4
    "too little left for what the pause costs": (
        replace(PAID, steps_left=50, price_there=Decimal("7.5")),
        "-16.4",
        Advice.STAY,
    ),
    # 10 steps lost are 0.1 h: 8 * (5.5 * 10 - 8 * 0.1 - 2.5 * 0.3), and the next checkpoint is 2 steps away
    "steps would be lost that the next checkpoint keeps": (
        replace(PAID, grace=timedelta(minutes=1), steps_at_risk=10, steps_to_checkpoint=2),
        "427.6",
        Advice.WAIT,
    ),
}


@pytest.mark.parametrize(("facts", "saved", "expected"), BY_HAND.values(), ids=BY_HAND)
def test_what_a_move_saves_is_what_was_computed_by_hand(facts: MoveFacts, saved: str, expected: Advice) -> None:
    found = advise(facts, estimate(facts))
    assert found.saving is not None
    assert (found.saving.quantize(Decimal("1e-7")), found.advice) == (Decimal(saved), expected)


def test_from_nothing_to_four_terabytes_the_advice_flips_once_at_the_size_that_pays_for_itself() -> None:
    """8 * (0.5 * (10 - size / rate) - 0.8 - 1.5) - 2 * size * egress = 0; rate in bytes an hour, egress a byte."""
    facts = replace(PAID, price_there=Decimal("7.5"))
    at_size = 8 * (0.5 * 10 - 8 * 0.1 - 7.5 * 0.2) / (8 * 0.5 / (1e9 * 3600) + 2 * 0.02 / 2**30)
    assert 0.5 * TERABYTE < at_size < 4 * TERABYTE
    for size in range(0, 4 * TERABYTE, TERABYTE // 100):
        sized = replace(facts, missing_checkpoint_bytes=size, checkpoint_bytes=size)
        expected = Advice.MOVE if size < at_size else Advice.STAY
        assert advise(sized, estimate(sized)).advice is expected, size
    for size, expected in ((int(at_size) - 1000, Advice.MOVE), (int(at_size) + 1000, Advice.STAY)):
        sized = replace(facts, missing_checkpoint_bytes=size, checkpoint_bytes=size)
        assert advise(sized, estimate(sized)).advice is expected


@pytest.mark.parametrize(
    "missing",
    [
        "units", "price_here", "price_there", "egress_price_per_gib", "brought_egress", "steps_left",
        "checkpoint_bytes", "missing_checkpoint_bytes", "image_bytes", "dataset_bytes", "flush", "restart",
    ],
)  # fmt: skip
def test_what_a_move_saves_is_unknown_as_soon_as_a_part_of_it_is(missing: str) -> None:
    dearer = replace(PAID, price_here=Decimal("2.5"), price_there=Decimal(8))
    facts = replace(dearer, **{missing: None})
    assert saving(facts, estimate(facts)) is None
    assert advise(facts, estimate(facts)).advice is Advice.MOVE, "what is not known speaks for nothing"


@given(
    size=st.integers(0, 4 * TERABYTE),
    left=st.integers(0, 10_000),
    there=st.decimals(min_value=0, max_value=20, places=2),
    less=st.decimals(min_value=0, max_value=1, places=2),
)
def test_a_cheaper_target_never_saves_less(size: int, left: int, there: Decimal, less: Decimal) -> None:
    facts = replace(PAID, checkpoint_bytes=size, missing_checkpoint_bytes=size, steps_left=left, price_there=there)
    cheaper = replace(facts, price_there=there * less)
    dearer_saves, cheaper_saves = saving(facts, estimate(facts)), saving(cheaper, estimate(cheaper))
    assert dearer_saves is not None
    assert cheaper_saves is not None
    assert cheaper_saves >= dearer_saves


@given(more=st.integers(0, 10**12), rate=st.floats(1, 1e12))
def test_more_bytes_never_take_less_time(more: int, rate: float) -> None:
    facts = replace(KNOWN, bandwidth_bytes_per_second=rate)
    larger = replace(facts, checkpoint_bytes=50 * MIB + more)
    assert estimate(larger).known >= estimate(facts).known
