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
    moment = holds_from(condition, points, now, lasting=lasting, largest_gap=largest_gap)
    return moment is not None and moment <= now


def holds_from(
    condition: Callable[[UsePoint], bool],
    points: Sequence[UsePoint],
    now: datetime,
    *,
    lasting: timedelta,
    largest_gap: timedelta,
) -> datetime | None:
    """From when on it has held for ``lasting``, if it goes on; a moment of the past where it has. None: it does not."""
    after, since = now, None
    for point in reversed(points):
        if point.at > now:
            continue
        if after - point.at > largest_gap or not condition(point):
            break
        after = since = point.at
        if now - since >= lasting:
            break
    return None if since is None else since + lasting


def above(share: Fraction) -> Callable[[UsePoint], bool]:
    """More than the share is in use; a side without GPUs is neither busy nor idle."""
    part, whole = share.as_integer_ratio()
    return lambda point: point.gpus > 0 and point.used_gpus * whole > part * point.gpus


def from_on(share: Fraction) -> Callable[[UsePoint], bool]:
    """The share or more is in use."""
    part, whole = share.as_integer_ratio()
    return lambda point: point.gpus > 0 and point.used_gpus * whole >= part * point.gpus


def up_to(share: Fraction) -> Callable[[UsePoint], bool]:
    """The share or less is in use."""
    part, whole = share.as_integer_ratio()
    return lambda point: point.gpus > 0 and point.used_gpus * whole <= part * point.gpus


def below(share: Fraction) -> Callable[[UsePoint], bool]:
    """Less than the share is in use."""
    part, whole = share.as_integer_ratio()
    return lambda point: point.gpus > 0 and point.used_gpus * whole < part * point.gpus
