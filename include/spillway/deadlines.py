"""Spot or on-demand for a job that has to be done by a moment.

Uniform Progress (Wu et al., Can't Be Late, NSDI 2024, 4.3) buys on-demand as soon as a job falls behind the straight
line from its beginning to its deadline; greedy only when the time that is left is just enough. Here the line lies
half-way between the two: it buys less early, and less in panic at the end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from spillway.model import JobSpec, LateRun, MoveEstimate, Schedule

RESTART = timedelta(minutes=10)
"""What a start costs before the job trains again, where nobody has measured it."""


class Pace(StrEnum):
    """AHEAD: only spot is worth its price. BEHIND: spot, else on-demand. LATE: nothing that may be taken away."""

    AHEAD = "ahead of"
    BEHIND = "behind"
    LATE = "late for"


ORDERED_BY = "deadline"
"""What the origin of a move says as ``ordered_by`` that a deadline asked for."""


def pace(schedule: Schedule, now: datetime, *, on_demand: bool = False, move: timedelta = timedelta()) -> Pace:
    """How the job stands. One that was moved off spot for its deadline stays late: it never goes to and fro.

    Two restarts are kept in hand: one for the spot that is lost at the last moment, one for the start after it.

    Args:
        on_demand: whether it trains on-demand now; it stops only when it is two restarts ahead.
        move: what comes before the start on-demand: bringing there what the job needs, or leaving the place it has.
    """
    restarts = 2 * schedule.restart
    in_hand = restarts + move
    if spare(schedule, now, move) <= timedelta():
        return Pace.LATE
    whole = schedule.deadline - schedule.began_at
    elapsed = now - schedule.began_at + (restarts if on_demand else timedelta())
    uniform = schedule.work * (elapsed / whole)
    at_the_last_moment = schedule.work + in_hand - (whole - elapsed)
    return Pace.BEHIND if schedule.done < (uniform + at_the_last_moment) / 2 else Pace.AHEAD


def spare(schedule: Schedule, now: datetime, move: timedelta) -> timedelta:
    """How long a job may still stay on spot and commit nothing; below 0 it is late. ``move`` as for ``pace``."""
    return timedelta() if schedule.moved else schedule.deadline - now - schedule.work_left - 2 * schedule.restart - move


def time_left(job: JobSpec, schedule: Schedule | None) -> timedelta | None:
    """How long the job trains at most from what it has committed; None where it does not say how long it takes.

    How far a run is only its schedule says: one without a deadline counts as if it began anew.
    """
    return job.longest if job.longest is None or schedule is None else min(job.longest, schedule.work_left)


def as_measured(schedule: Schedule, left: timedelta | None) -> Schedule:
    """The schedule of a job whose steps that are not committed take so long at the pace of its last ones.

    Where its user has said that it takes longer than that, this counts.
    """
    return schedule if left is None else replace(schedule, work=schedule.done + max(schedule.work_left, left))


def time_to_move(expected: MoveEstimate, restart: timedelta) -> timedelta:
    """From the order of a move to the first step at its target; a term that nobody knows counts as a restart.

    Lost steps are left out: to a schedule only what is committed is done.
    """
    terms = {**expected.beforehand, **expected.pause}
    return sum((restart if term is None else term for name, term in terms.items() if name != "lost_steps"), timedelta())


def late_title(late: LateRun) -> str:
    """One line for a subject, without any line break that a name may hold."""
    return " ".join(f"{late.run} of {late.department} cannot meet its deadline {_moment(late.deadline)}".split())


def late_text(late: LateRun) -> str:
    """What is known, and what can be done."""
    return (
        f"{late_title(late)}: job {late.job} is thought to be done about {_moment(late.expected_at)}, as of "
        f"{_moment(late.seen_at)}. `runs show {late.run}` tells whether it goes on, and how far it is. "
        "This is told once."
    )


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
