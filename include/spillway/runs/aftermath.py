"""What a settled attempt leaves behind: time of its pod that is still to be billed, and objects to be removed."""

from __future__ import annotations

from datetime import datetime, timedelta

from spillway.clouds.base import ClusterClient
from spillway.errors import SpillwayError
from spillway.leases import CLOCK_TOLERANCE
from spillway.model import Attempt, CostEntry, PodPhase, PodState
from spillway.pricing import prolonged
from spillway.runs.services import Say, Services
from spillway.runs.settling import last_word_at
from spillway.runs.watching import PROGRAM_LOG_LINES

LATEST_END = timedelta(hours=6)
"""How long after its attempt was settled a pod that is gone is asked for its end; longer than any grace."""
KEPT_FOR = timedelta(hours=24)
"""How long an ended pod stays to be looked at; in real clusters its node and its log may go earlier."""


def lately_settled(services: Services) -> tuple[Attempt, ...]:
    """The attempts that had a pod and were settled a short while ago, however long before that they ended."""
    since = services.clock() - LATEST_END
    runs = [newest.run for newest in services.ledger.recent_attempts(since)]
    attempts = (attempt for run in runs for attempt in services.ledger.attempts(run) if attempt.pod_uid)
    return tuple(attempt for attempt in attempts if attempt.settled_at and attempt.settled_at > since)


def pod_of(attempt: Attempt) -> PodState:
    """The pod of an attempt of which nothing is seen any more."""
    return PodState(name=attempt.label, phase=PodPhase.GONE, cluster=attempt.candidate.cluster, uid=attempt.pod_uid)


def unbilled(services: Services, attempt: Attempt, pod: PodState) -> CostEntry | None:
    """The booking of a settled attempt as it must be, where its pod is now known to have worked for longer.

    Whoever marks a task does not wait for the whole grace of its pod, and silence does not stop one. An end that is
    later by no more than clocks may differ says nothing new.
    """
    booked = next((entry for entry in services.ledger.costs(attempt.run) if entry.pod_uid == attempt.pod_uid), None)
    if booked is None:
        return None
    ended_at = _ended_at(services, attempt, pod) or booked.ended_at
    return prolonged(booked, ended_at) if ended_at - booked.ended_at > CLOCK_TOLERANCE else None


def rebook(services: Services, attempt: Attempt, pod: PodState, reason: str) -> None:
    """Correct the booking; once that is done nothing is unbilled."""
    entry = unbilled(services, attempt, pod)
    if entry is not None:
        ended_at = entry.ended_at  # all else of it may have been corrected meanwhile, and stays so
        services.ledger.correct(
            entry, lambda booked: prolonged(booked, max(booked.ended_at, ended_at)), reason=reason, now=services.clock()
        )


def removable(services: Services, attempt: Attempt, pod: PodState) -> bool:
    """Whether the pod of a settled attempt, and all that was created for it, has been kept for long enough.

    The Secrets for store and registry are the installation's, not a pod's, and stay.
    """
    if pod.phase not in {PodPhase.SUCCEEDED, PodPhase.FAILED} or pod.others_running or attempt.ended_at is None:
        return False
    return services.clock() - max(attempt.ended_at, pod.finished_at or attempt.ended_at) > KEPT_FOR


def remove(client: ClusterClient, pod: PodState, say: Say) -> None:
    """Remove the pod. Nobody may have followed its log to the end, so that is told first, as far as it can be read."""
    try:
        lines = client.logs(pod.name, tail=PROGRAM_LOG_LINES).lines
    except SpillwayError as problem:
        lines = (f"not to be read any more: {problem}",)
    for line in lines:
        say(f"  | {line}")
    client.remove(pod)


def _ended_at(services: Services, attempt: Attempt, pod: PodState) -> datetime | None:
    """When the pod ended; None while it works or where that cannot be known.

    A pod that was asked to end takes its object along. What is left is the last word of its trainer.
    """
    if pod.phase is PodPhase.GONE:
        return last_word_at(services, attempt)
    return None if pod.others_running else pod.finished_at
