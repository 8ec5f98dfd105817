"""End a run because a person wants it ended."""

from __future__ import annotations

import time
from datetime import timedelta

from spillway.errors import SpillwayError
from spillway.handover import OVER
from spillway.losses import PodVerdict
from spillway.model import Attempt, AttemptState, VerdictKind
from spillway.runs.services import Say, Services
from spillway.runs.settling import Ended, ending, looked_after_at, note_start, settle
from spillway.runs.stopping import ask_to_end, grace_of, note_ending

POLL_SECONDS = 0.5


def cancel_run(services: Services, run: str, reason: str, say: Say) -> None:
    """End the run until somebody asks for it anew: it gets no further attempt, and its open one ends as by ``cancel``.

    Whoever waits with it for a place gives up at the next look.
    """
    services.ledger.cancel_run(run, reason, services.clock())
    if cancel(services, run, reason, say) is None:
        say(f"run {run} gets no attempt any more; whoever waits with it for a place gives up")


def cancel(
    services: Services,
    run: str,
    reason: str,
    say: Say,
    *,
    kind: VerdictKind = VerdictKind.DELETED_BY_PERSON,
    number: int | None = None,
    patience: timedelta | None = None,
) -> Attempt | None:
    """End the run's open attempt: ask its pod to end with its grace, wait for it, settle as cancelled.

    Where its cluster does not answer the attempt is settled all the same; the sweeper stops its pod later.

    Args:
        kind: how the attempt then ended: its task did, or a person wanted it.
        number: the only attempt that is meant; whichever is open by default.
        patience: how long to wait for the pod; the pod's grace by default.
    Returns:
        The settled attempt, or None where none, or another one, was open.
    """
    attempt = services.ledger.open_attempt(run)
    if attempt is None or number not in {None, attempt.number}:
        return None
    ended = Ended(kind=kind, reason=reason)
    if attempt.state in {AttemptState.LAUNCHED, AttemptState.RUNNING}:
        try:
            ended = _end_pod(services, attempt, PodVerdict(kind=kind, reason=reason), patience)
        except SpillwayError as problem:
            say(f"pod {attempt.label} could not be followed to its end, the sweeper will: {problem}")
    settled = settle(services, attempt, ended)
    say(f"attempt {settled.number} of {run} is {settled.outcome}: {settled.reason}")
    return settled


def _end_pod(services: Services, attempt: Attempt, wanted: PodVerdict, patience: timedelta | None) -> Ended:
    """How the attempt ended: its pod was asked to, unless it was over. Waits for its end or until the patience is over.

    A pod that was over before is billed until then. One that succeeded, before or while it was waited for, did.
    """
    pod = services.pod(attempt)
    attempt = note_start(services, attempt, pod)
    seen_at = looked_after_at(services, attempt)
    if pod.phase not in OVER:
        attempt = note_ending(services, attempt, wanted.kind, wanted.reason)
        ask_to_end(services.site(attempt.candidate.cluster).client, pod, attempt.job)
        deadline = time.monotonic() + (patience or grace_of(pod, attempt.job)).total_seconds()
        while (pod := services.pod(attempt)).phase not in OVER and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        seen_at = services.clock()
    return ending(services, attempt, pod, noted=wanted, seen_at=seen_at)
