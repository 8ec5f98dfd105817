"""Move a run along: one function for operator, trigger, sweeper and command line.

``advance`` does whatever can be done without waiting for a pod and says what the run waits for. It may be killed
between any two lines and called again by anybody: the attempt's state in the ledger is the only memory.

    reserved -> staged -> launched -> running -> settled
"""

from __future__ import annotations

from dataclasses import dataclass

from spillway.errors import CapacityNever, IllegalTransition, NoProgress, SpillwayError, TrainingFailed
from spillway.losses import VerdictKind
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PlacementDecision
from spillway.placement.explain import table
from spillway.runs.admission import admit
from spillway.runs.holding import holding
from spillway.runs.launching import ensure_pod, has_trained, launch
from spillway.runs.services import Say, Services
from spillway.runs.settling import Ended, settle
from spillway.runs.staging import stage


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


def place_run(services: Services, run: str, job: JobSpec, say: Say) -> Attempt | PlacementDecision:
    """The run's open attempt, reserved now if it had none; the decision where nothing fits now.

    Raises:
        CapacityNever: no declared pool can ever hold the job.
    """
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
    Raises:
        CapacityNever: no declared pool can ever hold the job.
        NoProgress: the last attempts were lost one after the other without committing anything.
        SpillwayError: the attempt cannot be launched. Where a retry helps it stays open and goes on with the next
            call; otherwise it is settled as failed and holds nothing any more.
    """
    while True:
        attempt = services.ledger.open_attempt(run)
        if attempt is None:
            placed = _finished(services, run, restart=restart) or place_run(services, run, job, say)
            if isinstance(placed, Finished):
                return placed
            if isinstance(placed, PlacementDecision):
                return Waiting(decision=placed)
            attempt = placed
        try:
            with holding(services, attempt):
                return Watching(attempt=_launched(services, attempt, say))
        except SpillwayError as problem:
            unseen = _after_failure(services, attempt, problem, say)
            if unseen is not None:
                return unseen
        restart = False


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


def _launched(services: Services, attempt: Attempt, say: Say) -> Attempt:
    """The attempt with its pod, from whatever state it is in."""
    if attempt.state is AttemptState.RESERVED:
        attempt = stage(services, attempt, say)
    if attempt.state is AttemptState.STAGED:
        return launch(services, attempt, say)
    if attempt.state is AttemptState.LAUNCHED and attempt.pod_uid is None and not has_trained(services, attempt):
        return ensure_pod(services, attempt, say)
    return attempt


def _after_failure(services: Services, attempt: Attempt, problem: SpillwayError, say: Say) -> Watching | None:
    """What follows a launch that went wrong: None to place the run again, else the watch for a pod that may be there.

    Raises:
        SpillwayError: ``problem``, where neither helps.
    """
    if isinstance(problem, IllegalTransition):  # somebody else carries the attempt, or has ended it
        raise problem
    attempt = services.ledger.attempt(attempt.run, attempt.number)
    if not problem.retry_helps:
        settle(services, attempt, Ended(kind=VerdictKind.PROGRAM_ERROR, reason=str(problem)))
        raise problem
    if _answers(services, attempt.candidate.cluster):
        raise problem
    if attempt.state is AttemptState.LAUNCHED:
        return Watching(attempt=attempt)
    say(f"{_place(attempt)} is lost before the launch: {problem}")
    settle(services, attempt, Ended(kind=VerdictKind.CLUSTER_UNREACHABLE, reason=str(problem)))
    return None


def _answers(services: Services, cluster: str) -> bool:
    try:
        services.site(cluster).client.describe()
    except SpillwayError:
        return False
    return True


def _finished(services: Services, run: str, *, restart: bool) -> Finished | None:
    """The end of a run whose last attempt decides it; None where another attempt may follow."""
    attempts = services.ledger.attempts(run)
    if not attempts or (restart and attempts[-1].outcome is not Outcome.SUCCEEDED):
        return None
    if attempts[-1].outcome is not Outcome.PREEMPTED:
        return Finished(attempt=attempts[-1])
    recent = attempts[-services.configuration.runs.attempts_without_progress :]
    if len(recent) == services.configuration.runs.attempts_without_progress and not any(map(_progressed, recent)):
        reasons = "; ".join(f"attempt {a.number} on {_place(a)}: {a.reason}" for a in recent)
        raise NoProgress(f"run '{run}': {len(recent)} attempts in a row committed no new step: {reasons}")
    return None


def _progressed(attempt: Attempt) -> bool:
    """Whether it committed a step; one that did not end by being lost begins a new count."""
    return attempt.committed_step is not None or attempt.outcome is not Outcome.PREEMPTED


def _place(attempt: Attempt) -> str:
    candidate = attempt.candidate
    return f"{candidate.cluster}/{candidate.pool} ({candidate.billing})"
