"""Move a run along: one function for operator, trigger, sweeper and command line.

``advance`` does whatever can be done without waiting for a pod and says what the run waits for. It may be killed
between any two lines and called again by anybody: the attempt's state in the ledger is the only memory.

    reserved -> staged -> launched -> running -> settled
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from spillway.errors import CapacityNever, IllegalTransition, NoProgress, SpillwayError, TrainingFailed
from spillway.handover import OVER
from spillway.model import (
    Attempt,
    AttemptState,
    JobSpec,
    Outcome,
    PlacementDecision,
    PodPhase,
    PodState,
    RunPolicy,
    VerdictKind,
)
from spillway.placement.explain import once, table
from spillway.runs.admission import admit
from spillway.runs.displacing import awaited, make_room, placed_anew, waits_for
from spillway.runs.explaining import newest, placing, told
from spillway.runs.holding import holding
from spillway.runs.launching import ensure_pod, has_trained, launch
from spillway.runs.services import Say, Services
from spillway.runs.settling import Ended, arrives, note_start, settle
from spillway.runs.staging import stage
from spillway.runs.stopping import ask_to_end, note_ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nothing fits now; the decision says why for each candidate."""

    decision: PlacementDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class GivingWay:
    """Others give way to the attempt and have not ended yet, or do not any more; ``why`` tells a person who, or why."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """A pod was launched; watch it."""

    attempt: Attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run is over; ``attempt`` is its last one."""

    attempt: Attempt


Step = Waiting | GivingWay | Watching | Finished


def place_run(services: Services, run: str, job: JobSpec, say: Say) -> Attempt | PlacementDecision:
    """The run's open attempt, reserved now if it had none; the decision where nothing fits now.

    Raises:
        CapacityNever: no declared pool can ever hold the job.
        RunCancelled: a person has ended the run.
    """
    attempt, decision = admit(services, run, job)
    if attempt is not None:
        why = told(placing(services.ledger, attempt))
        say(f"attempt {attempt.number} of {run} is placed on {_place(attempt)}{once(decision)}\n{why}")
        return attempt
    if not decision.possible:
        raise CapacityNever(job.name, table(newest(services.ledger, run).decision))
    return decision


def settled_attempts(services: Services, run: str) -> int:
    """How many attempts of the run are over: what somebody who asks for it now leaves behind."""
    return sum(attempt.outcome is not None for attempt in services.ledger.attempts(run))


def advance(services: Services, run: str, job: JobSpec, say: Say, *, asked_after: int = 0) -> Step:
    """Bring the run as far as it goes without waiting.

    Args:
        asked_after: the ``settled_attempts`` when somebody asked for the run. They are left behind: none of them ends
            the run, unless it succeeded, or counts as one without progress.
    Raises:
        CapacityNever: no declared pool can ever hold the job.
        RunCancelled: a person has ended the run, which waits for a place.
        NoProgress: the last attempts were lost or stalled one after the other without committing anything.
        SpillwayError: the attempt cannot be launched. Where a retry helps it stays open and goes on with the next
            call; otherwise it is settled as failed and holds nothing any more.
    """
    while True:
        attempt = services.ledger.open_attempt(run)
        if attempt is None:
            placed = _finished(services, run, asked_after) or place_run(services, run, job, say)
            if isinstance(placed, Finished):
                return placed
            if isinstance(placed, PlacementDecision):
                return Waiting(decision=placed)
            attempt = placed
        try:
            with holding(services, attempt):
                if attempt.state is AttemptState.RESERVED:
                    attempt = stage(services, attempt, say)
                attempt = make_room(services, attempt)
                if attempt.state is AttemptState.SETTLED:  # placed anew with the next look: it never spins
                    return GivingWay(why=placed_anew(attempt))
                if attempt.state is AttemptState.STAGED and (others := awaited(services, attempt)):
                    return GivingWay(why=waits_for(attempt, others))
                return Watching(attempt=_launched(services, attempt, say))
        except SpillwayError as problem:
            unseen = _after_failure(services, attempt, problem, say)
            if unseen is not None:
                return unseen


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
    """The staged attempt with its pod, from whatever state it is in then."""
    if attempt.state is AttemptState.STAGED:
        return launch(services, attempt, say)
    if attempt.state is AttemptState.LAUNCHED and attempt.pod_uid is None and not has_trained(services, attempt):
        return ensure_pod(services, attempt, say)
    return attempt


def _after_failure(services: Services, attempt: Attempt, problem: SpillwayError, say: Say) -> Watching | None:
    """What follows a launch that went wrong: None to look at the run again, else the watch for a pod that may be there.

    Raises:
        SpillwayError: ``problem``, where neither helps.
    """
    attempt = services.ledger.attempt(attempt.run, attempt.number)
    if isinstance(problem, IllegalTransition) or attempt.state is AttemptState.SETTLED:
        return None  # another process carries the run too, and is ahead: states only go on, so this ends
    pod = _pod(services, attempt) if problem.retry_helps else None
    moved_here = pod is not None and arrives(services, attempt)
    if pod is not None and pod.phase is not PodPhase.GONE and moved_here:  # created, and only the answer was lost
        say(f"pod {pod.name} at {attempt.candidate.cluster} is there and is watched, in spite of: {problem}")
        return Watching(attempt=services.ledger.amend(attempt, pod_uid=pod.uid))
    if not problem.retry_helps or moved_here:
        settled = _give_up(services, attempt, problem, say)
        if settled.outcome is not Outcome.PREEMPTED:
            raise problem
        say(f"{_place(attempt)} is left: {settled.reason}")
        return None
    if pod is not None:
        raise problem
    if attempt.state is AttemptState.LAUNCHED:
        return Watching(attempt=attempt)
    say(f"{_place(attempt)} is lost before the launch: {problem}")
    settle(services, attempt, Ended(kind=VerdictKind.CLUSTER_UNREACHABLE, reason=str(problem)))
    return None


def _give_up(services: Services, attempt: Attempt, problem: SpillwayError, say: Say) -> Attempt:
    """Settle an attempt that cannot go on; a pod that it may have is asked to end and booked from its start."""
    ended = Ended(kind=VerdictKind.PROGRAM_ERROR, reason=str(problem))
    if attempt.state in {AttemptState.LAUNCHED, AttemptState.RUNNING}:
        try:
            pod = services.pod(attempt)
            attempt = services.ledger.amend(note_start(services, attempt, pod), pod_uid=pod.uid)
            ended = replace(ended, at=pod.finished_at)
            if pod.phase not in OVER:
                attempt = note_ending(services, attempt, ended.kind, ended.reason)
                ask_to_end(services.site(attempt.candidate.cluster).client, pod, attempt.job)
                say(f"pod {pod.name} at {attempt.candidate.cluster} is asked to end: {problem}")
        except SpillwayError as unasked:
            say(f"pod {attempt.label} could not be asked to end, the sweeper will: {unasked}")
    return settle(services, attempt, ended)


def _pod(services: Services, attempt: Attempt) -> PodState | None:
    """The attempt's pod, GONE where it has none; None where its cluster does not answer."""
    try:
        services.site(attempt.candidate.cluster).client.describe()
        return services.pod(attempt)
    except SpillwayError:
        return None


def _finished(services: Services, run: str, asked_after: int) -> Finished | None:
    """The end of a run whose last attempt decides it; None where another attempt may follow."""
    attempts = services.ledger.attempts(run)
    if attempts and attempts[-1].outcome is Outcome.SUCCEEDED:
        return Finished(attempt=attempts[-1])
    asked_for = attempts[asked_after:]
    if not asked_for:
        return None
    last = asked_for[-1].outcome
    if last is None or not last.goes_on:
        return Finished(attempt=asked_for[-1])
    _require_progress(asked_for, services.configuration.runs)
    return None


def _require_progress(attempts: Sequence[Attempt], policy: RunPolicy) -> None:
    """Give a run up that is lost, or stalls, again and again: the rule of progress.

    ``attempts_without_progress`` in a row that were lost, to whatever, before they committed a step end the run. What
    begins a new count: a committed step, an attempt that ended otherwise, or somebody who asks for the run
    (``asked_after``). Those that stalled are counted by themselves, up to ``stalls_without_progress`` since a step was
    committed: each has held its GPUs for nothing, and places that are lost say nothing of a program that hangs.

    A reservation whose lease ran out before there was a pod tells nothing of its place, so it is left out: nobody was
    there to use it. Each of these costs a lost worker, and Airflow's retries bound those. A launch that its owner saw
    fail counts with or without a pod: a place that never gets as far as a pod would otherwise be tried for ever, once
    after each cool-down. An attempt that was moved, or gave way, before it committed anything is left out as well: no
    place was lost.

    Raises:
        NoProgress: they do.
    """
    counted = [attempt for attempt in attempts if not (_was_idle(attempt) or _was_sent_away(attempt))]
    lost = [attempt for attempt in counted if not _stalled(attempt)][-policy.attempts_without_progress :]
    if len(lost) == policy.attempts_without_progress and not any(map(_progressed, lost)):
        raise _no_progress(lost, "attempts in a row committed no new step")
    fruitless = list(takewhile(lambda attempt: attempt.committed_step is None, reversed(counted)))
    stalls = [attempt for attempt in reversed(fruitless) if _stalled(attempt)]
    if len(stalls) >= policy.stalls_without_progress:
        raise _no_progress(stalls, "attempts stalled and committed no new step")


def _no_progress(attempts: Sequence[Attempt], what: str) -> NoProgress:
    reasons = "; ".join(f"attempt {attempt.number} on {_place(attempt)}: {attempt.reason}" for attempt in attempts)
    return NoProgress(
        f"run '{attempts[0].run}': {len(attempts)} {what}: {reasons}; "
        "when that is repaired, start the run again or clear its task: it goes on from its newest checkpoint"
    )


def _stalled(attempt: Attempt) -> bool:
    return attempt.outcome is Outcome.STALLED


def _was_idle(attempt: Attempt) -> bool:
    lapsed = attempt.ended_at is not None and attempt.lease_expires_at <= attempt.ended_at
    return lapsed and attempt.pod_uid is None


def _was_sent_away(attempt: Attempt) -> bool:
    sent_away = attempt.outcome is Outcome.MIGRATED or attempt.ending is VerdictKind.DISPLACED
    return sent_away and attempt.committed_step is None


def _progressed(attempt: Attempt) -> bool:
    return attempt.committed_step is not None or attempt.outcome is not Outcome.PREEMPTED


def _place(attempt: Attempt) -> str:
    candidate = attempt.candidate
    return f"{candidate.cluster}/{candidate.pool} ({candidate.billing})"
