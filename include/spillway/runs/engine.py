"""Move a run along: one function for operator, trigger, sweeper and command line.

``advance`` does whatever can be done without waiting for a pod and says what the run waits for. It may be killed
between any two lines and called again by anybody: the attempt's state in the ledger is the only memory.

    reserved -> staged -> launched -> running -> settled
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.errors import CapacityNever, NoProgress, SpillwayError, TrainingFailed
from spillway.losses import VerdictKind
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PlacementDecision
from spillway.placement.explain import table
from spillway.runs.admission import admit
from spillway.runs.launching import ensure_pod, launch
from spillway.runs.services import Services
from spillway.runs.settling import settle
from spillway.runs.staging import Say, stage
from spillway.runs.watching import Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nothing fits now; the decision says why for each candidate."""

    decision: PlacementDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """A pod was launched; watch it."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run is over; ``attempt`` is its last one."""

    attempt: Attempt


Step = Waiting | Watching | Finished
BEFORE_POD = frozenset({AttemptState.RESERVED, AttemptState.STAGED})


def place_run(services: Services, run: str, job: JobSpec, say: Say) -> Attempt | PlacementDecision:
    """The run's open attempt, reserved now if it had none; the decision where nothing fits now.

    Raises:
        CapacityNever: no declared pool can ever hold the job.
        NoProgress: the last attempts were lost one after the other without committing anything.
    """
    _check_progress(services, run)
    attempt, decision = admit(services, run, job)
    if attempt is not None:
        say(f"attempt {attempt.number} of {run} is placed on {_place(attempt)}\n{table(decision)}")
        return attempt
    if not decision.possible:
        raise CapacityNever(job.name, table(decision))
    return decision


def advance(services: Services, run: str, job: JobSpec, say: Say, *, restart: bool = False) -> Step:
    """Bring the run as far as it goes without waiting.

    Args:
        restart: begin a new attempt also after one that failed or was cancelled: somebody asked for the run anew.
    """
    attempt = services.ledger.open_attempt(run)
    if attempt is None:
        last = _last(services, run)
        if last is not None and _is_final(last, restart=restart):
            return Finished(attempt=last)
        placed = place_run(services, run, job, say)
        if isinstance(placed, PlacementDecision):
            return Waiting(decision=placed)
        attempt = placed
    return Watching(attempt=_bring_up(services, attempt, say))


def _bring_up(services: Services, attempt: Attempt, say: Say) -> Attempt:
    """The attempt with its pod launched.

    What stands in the way for ever (an unknown image, a refused password) also ends the attempt, so that its place is
    free at once; a launched one is left as it is, for its pod may be there.
    """
    try:
        if attempt.state is AttemptState.RESERVED:
            attempt = stage(services, attempt, say)
        if attempt.state is AttemptState.STAGED:
            return launch(services, attempt, say)
        if attempt.state is AttemptState.LAUNCHED and attempt.pod_uid is None:
            return ensure_pod(services, attempt, say)
        return attempt
    except SpillwayError as problem:
        stored = services.ledger.attempt(attempt.run, attempt.number)
        if not problem.retry_helps and stored.state in BEFORE_POD:
            settle(services, stored, Ended(kind=VerdictKind.PROGRAM_ERROR, reason=f"could not be started: {problem}"))
        raise


def conclude(services: Services, run: str, number: int, ended: Ended, say: Say) -> Attempt:
    """Settle what a watch saw end. The next ``advance`` goes on from there.

    Raises:
        TrainingFailed: the program itself failed; the error carries its last log lines.
    """
    attempt = settle(services, services.ledger.attempt(run, number), ended)
    say(f"attempt {number} of {run} on {_place(attempt)} {attempt.outcome}: {attempt.reason}")
    if attempt.outcome is Outcome.FAILED:
        tail = "\n".join(ended.log_tail)
        raise TrainingFailed(f"attempt {number} of {run} failed: {attempt.reason}" + (f"\n{tail}" if tail else ""))
    return attempt


def _is_final(attempt: Attempt, *, restart: bool) -> bool:
    if attempt.outcome is Outcome.PREEMPTED:
        return False
    return attempt.outcome is Outcome.SUCCEEDED or not restart


def _last(services: Services, run: str) -> Attempt | None:
    attempts = services.ledger.attempts(run)
    return attempts[-1] if attempts else None


def _check_progress(services: Services, run: str) -> None:
    """Attempts in a row that were lost without a new committed step end the run, whatever took them away."""
    limit = services.configuration.runs.attempts_without_progress
    recent = services.ledger.attempts(run)[-limit:]
    if len(recent) == limit and all(a.outcome is Outcome.PREEMPTED and a.committed_step is None for a in recent):
        reasons = "; ".join(f"attempt {a.number} on {_place(a)}: {a.reason}" for a in recent)
        raise NoProgress(f"run '{run}': {limit} attempts in a row committed no new step: {reasons}")


def _place(attempt: Attempt) -> str:
    candidate = attempt.candidate
    return f"{candidate.cluster}/{candidate.pool} ({candidate.billing})"
