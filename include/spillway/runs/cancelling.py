"""Stop what nobody wants any more: a run that a person ended, and pods that no open attempt owns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from spillway.clouds.base import ClusterClient
from spillway.errors import SpillwayError
from spillway.losses import VerdictKind
from spillway.model import Attempt, AttemptState, PodPhase, PodState
from spillway.runs.services import Say, Services
from spillway.runs.settling import Ended, note_start, settle, settle_over
from spillway.runs.stopping import ask_to_end, grace_of, note_ending

OVER = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})
POLL_SECONDS = 0.5

OwnerAlive = Callable[[Mapping[str, Any]], bool]
"""Whether the task that a run belongs to (its recorded origin) may still be looking after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One pod that nobody owned; ``stopped`` is False in a dry run or where stopping it failed."""

    cluster: str
    pod: str
    reason: str
    stopped: bool


def cancel(services: Services, run: str, reason: str, say: Say, *, patience: timedelta | None = None) -> Attempt | None:
    """End the run's open attempt: ask its pod to end with its grace, wait for it, settle as cancelled.

    Where its cluster does not answer the attempt is settled all the same; the sweeper stops its pod later.

    Args:
        patience: how long to wait for the pod; the pod's grace by default.
    Returns:
        The settled attempt, or None where none was open.
    """
    attempt = services.ledger.open_attempt(run)
    if attempt is None:
        return None
    if attempt.state in {AttemptState.LAUNCHED, AttemptState.RUNNING}:
        try:
            client = services.site(attempt.candidate.cluster).client
            attempt = _stopped(services, client, attempt, reason, patience)
        except SpillwayError as problem:
            say(f"pod {attempt.label} could not be followed to its end, the sweeper will: {problem}")
    settled = settle(services, attempt, Ended(kind=VerdictKind.DELETED_BY_PERSON, reason=reason))
    say(f"attempt {settled.number} of {run} is {settled.outcome}: {settled.reason}")
    return settled


def _stopped(
    services: Services, client: ClusterClient, attempt: Attempt, reason: str, patience: timedelta | None
) -> Attempt:
    """The attempt after its pod was asked to end; returns when the pod has ended or the patience is over."""
    pod = client.state(attempt.label)
    attempt = note_start(services, attempt, pod)
    attempt = note_ending(services, attempt, VerdictKind.DELETED_BY_PERSON, reason)
    ask_to_end(client, pod, attempt.job)
    deadline = time.monotonic() + (patience or grace_of(pod, attempt.job)).total_seconds()
    while client.state(attempt.label).phase not in OVER and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return attempt


def sweep(services: Services, owner_alive: OwnerAlive, say: Say, *, dry_run: bool = False) -> tuple[Swept, ...]:
    """Stop every pod of ours that no living task looks after, on every cluster that answers."""
    swept: list[Swept] = []
    for name, client in services.clients().items():
        if isinstance(client, SpillwayError):
            say(f"{name} is left out: {client}")
            continue
        try:
            pods = client.owned()
        except SpillwayError as problem:
            say(f"{name} is left out: {problem}")
            services.forget(name)
            continue
        for pod in pods:
            attempt = services.ledger.attempt_by_label(pod.attempt or pod.name)
            reason = _orphan_reason(services, attempt, pod, owner_alive)
            if reason:
                stopped = not dry_run and _end_orphan(services, client, attempt, pod, reason, say)
                swept.append(Swept(cluster=name, pod=pod.name, reason=reason, stopped=stopped))
    return tuple(swept)


def _end_orphan(
    services: Services, client: ClusterClient, attempt: Attempt | None, pod: PodState, reason: str, say: Say
) -> bool:
    """Whether the pod has been asked to end, and its attempt, where it is still open, is settled."""
    try:
        if attempt is None or attempt.state is AttemptState.SETTLED:
            ask_to_end(client, pod, attempt.job if attempt else None)
        elif settle_over(services, attempt, pod) is None:
            stopped = _stopped(services, client, attempt, reason, None)
            settle(services, stopped, Ended(kind=VerdictKind.DELETED_BY_PERSON, reason=reason))
    except SpillwayError as problem:
        say(f"{pod.cluster}: {pod.name} could not be stopped: {problem}")
        return False
    say(f"{pod.cluster}: {pod.name} is stopped: {reason}")
    return True


def _orphan_reason(services: Services, attempt: Attempt | None, pod: PodState, owner_alive: OwnerAlive) -> str:
    """Why nobody owns the pod; empty where somebody does or where it has ended by itself."""
    if attempt is None:
        return "the ledger knows no such attempt"
    if attempt.state is AttemptState.SETTLED:
        ended = pod.phase in OVER
        return "" if ended and attempt.pod_uid == pod.uid else f"its attempt was settled: {attempt.reason}"
    if attempt.lease_expires_at > services.clock():
        return ""
    if owner_alive(services.ledger.origin(attempt.run)):
        return ""
    return "its task has ended and its lease is over"
