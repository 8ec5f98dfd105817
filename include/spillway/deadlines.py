"""Spot or on-demand for a job that has to be done by a moment.

Uniform Progress (Wu et al., Can't Be Late, NSDI 2024, 4.3) buys on-demand as soon as a job falls behind the straight
line from its beginning to its deadline; greedy only when the time that is left is just enough. Here the line lies
half-way between the two: it buys less early, and less in panic at the end.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from spillway.model import Schedule

RESTART = timedelta(minutes=10)
"""What a start costs before the job trains again, where nobody has measured it."""


class Pace(StrEnum):
    """AHEAD: only spot is worth its price. BEHIND: spot, else on-demand. LATE: nothing that may be taken away."""

    AHEAD = "ahead of"
    BEHIND = "behind"
    LATE = "late for"


def pace(schedule: Schedule, now: datetime, *, on_demand: bool = False) -> Pace:
    """How the job stands.

    Two restarts are kept in hand: one for the spot that is lost at the last moment, one for the start after it.

    Args:
        on_demand: whether it trains on-demand now; it stops only when it is two restarts ahead.
    """
    in_hand = 2 * schedule.restart
    if schedule.deadline - now <= schedule.work_left + in_hand:
        return Pace.LATE
    whole = schedule.deadline - schedule.began_at
    elapsed = now - schedule.began_at + (in_hand if on_demand else timedelta())
    uniform = schedule.work * (elapsed / whole)
    at_the_last_moment = schedule.work + in_hand - (whole - elapsed)
    return Pace.BEHIND if schedule.done < (uniform + at_the_last_moment) / 2 else Pace.AHEAD
