"""Whether a condition has held for a while, by points that were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from fractions import Fraction

from spillway.model import UsePoint


def has_held(
    condition: Callable[[UsePoint], bool],
    points: Sequence[UsePoint],
    now: datetime,
    *,
    lasting: timedelta,
    largest_gap: timedelta,
) -> bool:
    """Whether every point says so from ``lasting`` ago until now, and nothing of that time went unmeasured.

    Args:
        points: oldest first; those after ``now`` are not looked at.
        largest_gap: how far two points, or the last one and now, may lie apart.
    """
    after = now
    for point in reversed(points):
        if point.at > now:
            continue
        if after - point.at > largest_gap or not condition(point):
            return False
        if now - point.at >= lasting:
            return True
        after = point.at
    return False


def above(share: Fraction) -> Callable[[UsePoint], bool]:
    """More than the share is in use; a side without GPUs is neither busy nor idle."""
    return lambda point: point.gpus > 0 and point.used_gpus * share.denominator > share.numerator * point.gpus


def from_on(share: Fraction) -> Callable[[UsePoint], bool]:
    """The share or more is in use."""
    return lambda point: point.gpus > 0 and point.used_gpus * share.denominator >= share.numerator * point.gpus


def up_to(share: Fraction) -> Callable[[UsePoint], bool]:
    """The share or less is in use."""
    return lambda point: point.gpus > 0 and point.used_gpus * share.denominator <= share.numerator * point.gpus


def below(share: Fraction) -> Callable[[UsePoint], bool]:
    """Less than the share is in use."""
    return lambda point: point.gpus > 0 and point.used_gpus * share.denominator < share.numerator * point.gpus
