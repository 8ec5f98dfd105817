"""A run that trains and its deadline: how it stands at each look, and the move off spot while there is time for it.

What the deadline asks for is ordered here, by whoever watches the pod; what brings it about copies bytes and is for
whoever carries the run: ``leave``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.checkpoints.progress import Progress, lasting, read_progress
from spillway.deadlines import ORDERED_BY, as_measured, spare, time_to_move
from spillway.errors import SpillwayError
from spillway.migration import told
from spillway.model import Attempt, AttemptState, Billing, LateRun, Move, MoveState, Schedule
from spillway.placement.explain import name
from spillway.runs.holding import holding
from spillway.runs.migrating import bring, drain, order_move
from spillway.runs.move_plan import NOT_SPOT, move_plan
from spillway.runs.services import Say, Services

RETRY = timedelta(minutes=2)
"""After which a place is looked for again; shorter than the restarts that are kept in hand."""


TOO_OLD = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """``told`` is for people; ``move`` is one that the deadline has ordered and that is to be carried out now."""

    told: str
    move: Move | None = None


@dataclass(slots=True)
class DeadlineWatch:
    """The memory between looks at one attempt.

    ``_takes`` is how long leaving its place was found to take. That asks every site, so it is done again only when half
    of the time has passed that was to spare, and no sooner than after ``RETRY``. What a look finds to spare may be less
    than before, as steps are lost or take longer: it brings that moment forward.
    """

    _takes: timedelta = timedelta()
    _ask_at: datetime | None = None
    _refused: str = ""

    def look(self, services: Services, attempt: Attempt, progress: Progress | None, now: datetime) -> Standing | None:
        """How the attempt stands now; None where its run has no deadline."""
        schedule = schedule_of(services, attempt, progress, now)
        if schedule is None:
            return None
        stands = outlook(schedule, progress, now)
        if attempt.candidate.billing is not Billing.SPOT:
            return Standing(told=stands)
        known = [move for move in services.ledger.moves(attempt.run) if move.attempt == attempt.number]
        if known and known[-1].open:
            ours = known[-1].state is MoveState.ORDERED and known[-1].origin == _origin(attempt)
            return Standing(told=stands, move=known[-1] if ours else None)
        if known and known[-1].ended_at is not None:
            self._ask_at = max(self._ask_at or now, known[-1].ended_at + RETRY)
        if self._ask_at is not None:
            self._ask_at = min(self._ask_at, _next_ask(schedule, now, self._takes))
        move = self._ask(services, attempt, schedule, now) if now >= (self._ask_at or now) else None
        left = spare(schedule, now, self._takes)
        stays = (
            f"on spot until {now + left:%Y-%m-%d %H:%M} UTC at least" if left > timedelta() else "to leave spot for it"
        )
        return Standing(told=f"{stands}; {self._refused or stays}", move=move)

    def _ask(self, services: Services, attempt: Attempt, schedule: Schedule, now: datetime) -> Move | None:
        """Find out how long leaving takes, and order it where that is all the time that there is to spare."""
        self._refused = ""
        due = spare(schedule, now, self._takes) <= timedelta()
        try:
            self._takes = time_to_move(move_plan(services, attempt.run, NOT_SPOT).estimate, schedule.restart)
            due = spare(schedule, now, self._takes) <= timedelta()
            self._ask_at = _next_ask(schedule, now, self._takes)
            return _order(services, attempt, schedule, self._takes) if due else None
        except SpillwayError as problem:
            self._ask_at = now + RETRY
            if due:
                self._refused = (
                    f"its deadline asks for a place that is not spot, tried again in {lasting(RETRY)}: {problem}"
                )
            return None


def _next_ask(schedule: Schedule, now: datetime, takes: timedelta) -> datetime:
    return now + max(RETRY, spare(schedule, now, takes) / 2)


def schedule_of(services: Services, attempt: Attempt, progress: Progress | None, now: datetime) -> Schedule | None:
    """By when the run has to be done, and what is left of it at the pace of its trainer; None without a deadline."""
    schedule = services.ledger.schedule(attempt.run, attempt.job, now)
    return None if schedule is None else as_measured(schedule, progress.uncommitted if progress else None)


def outlook(schedule: Schedule, progress: Progress | None, now: datetime) -> str:
    """When the run is done if it goes on like this, and by when it has to be."""
    left = progress.left if progress else None
    done_at = now + (schedule.work_left if left is None else left)
    late = f", {lasting(done_at - schedule.deadline)} too late" if done_at > schedule.deadline else ""
    return f"done about {done_at:%Y-%m-%d %H:%M}, deadline {schedule.deadline:%Y-%m-%d %H:%M} UTC{late}"


def late_runs(services: Services) -> tuple[LateRun, ...]:
    """The runs that can no longer be done by their deadline and are not on record as late.

    Those whose deadline was over a day ago are left out: nobody is helped by that.
    """
    now, found = services.clock(), []
    for run, job in services.ledger.unfinished():
        schedule = services.ledger.schedule(run, job, now)
        if schedule is None or schedule.deadline < now - TOO_OLD:
            continue
        left = _left(services, run)
        expected_at = now + ((job.expected_duration or schedule.work) - schedule.done if left is None else left)
        if max(now, expected_at) > schedule.deadline:
            late = {"deadline": schedule.deadline, "expected_at": max(now, expected_at), "seen_at": now}
            found.append(LateRun(run=run, job=job.name, department=job.department, **late))
    return tuple(found)


def _left(services: Services, run: str) -> timedelta | None:
    """How long the run's trainer thinks that its steps take; None where none trains, or it cannot tell."""
    attempt = services.ledger.open_attempt(run)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        return None
    try:
        progress = read_progress(services.checkpoints(attempt), run, attempt.number)
    except SpillwayError:
        return None
    return progress.left if progress else None


def leave(services: Services, move: Move, say: Say) -> None:
    """Make the target ready and let the run go there; where that fails it stays, and is asked about again."""
    try:
        leaving = services.ledger.attempt(move.run, move.attempt)
        say(f"{move.label}: {name(leaving.candidate)} -> {name(move.target)}: {move.reason}; {told(move.estimate)}")
        with holding(services, leaving):
            drain(services, bring(services, move, say), say)
    except SpillwayError as problem:  # the pod trains, and whoever watches it must go on
        say(f"{move.label} is not carried out now: {problem}")


def _order(services: Services, attempt: Attempt, schedule: Schedule, takes: timedelta) -> Move:
    reason = (
        f"its deadline {schedule.deadline:%Y-%m-%d %H:%M} UTC: {lasting(schedule.work_left)} to train and "
        f"{lasting(takes)} to move leave no time for another spot that is lost"
    )
    return order_move(services, attempt.run, NOT_SPOT, reason, lambda line: None, origin=_origin(attempt))


def _origin(attempt: Attempt) -> dict[str, object]:
    return {"ordered_by": ORDERED_BY, "attempt": attempt.number}
