"""A condition has held for a while only where it was measured all the time."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest

from spillway.model import UsePoint
from spillway.scaling.held import above, below, from_on, has_held, up_to
from spillway.testing.builders import NOW
from spillway.testing.elastic import MINUTE, measured

SECOND = timedelta(seconds=1)
GAP = timedelta(seconds=90)


def held(*ages: timedelta, lasting: timedelta = 3 * MINUTE, used_gpus: int = 90) -> bool:
    """Whether more than 80 % have been in use for three minutes, by points of these ages."""
    points = [UsePoint(at=NOW - age, gpus=100, used_gpus=used_gpus, queued_jobs=0, pending_gpus=0) for age in ages]
    return has_held(above(Fraction(4, 5)), points, NOW, lasting=lasting, largest_gap=GAP)


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        ([180, 150, 120, 90, 60, 30, 0], True),
        ([181, 91, 1], True),
        ([179, 150, 120, 90, 60, 30, 0], False),
        ([180, 89, 0], False),
        ([270, 180, 90], True),
        ([271, 181, 91], False),
        ([0], False),
        ([], False),
        ([180, 150, 120, 90, 60, 30, 0, -30], True),
    ],
    ids=[
        "every 30 s, exactly long enough",
        "gaps of 90 s",
        "a second too short",
        "a gap of 91 s",
        "nothing for 90 s",
        "nothing for 91 s",
        "one point",
        "no point",
        "a point after now is not looked at",
    ],
)
def test_time_that_nobody_measured_is_no_time_in_which_it_held(ages: list[int], expected: bool) -> None:
    assert held(*(age * SECOND for age in ages)) is expected


def test_one_point_that_says_otherwise_ends_it() -> None:
    points = measured(lambda age: 80 if age == 2 * MINUTE else 90)
    assert not has_held(above(Fraction(4, 5)), points, NOW, lasting=3 * MINUTE, largest_gap=GAP)
    assert has_held(above(Fraction(4, 5)), points, NOW, lasting=timedelta(seconds=90), largest_gap=GAP)


@pytest.mark.parametrize(
    ("used_gpus", "expected"),
    [
        (79, (False, False, True, True)),
        (80, (False, True, True, False)),
        (81, (True, True, False, False)),
    ],
)
def test_a_bound_belongs_to_what_says_so(used_gpus: int, expected: tuple[bool, ...]) -> None:
    [point] = measured(used_gpus, ago=timedelta())
    share = Fraction(4, 5)
    assert tuple(kind(share)(point) for kind in (above, from_on, up_to, below)) == expected


def test_a_side_without_gpus_is_neither_busy_nor_idle() -> None:
    [point] = measured(0, 0, ago=timedelta())
    assert not any(kind(Fraction(1, 2))(point) for kind in (above, from_on, up_to, below))
