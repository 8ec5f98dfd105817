"""Ask a pod to end so that its last checkpoint is kept.

Why it is asked goes on record first. Whoever asked may die before the pod is gone, and the next one to look would take
a pod that is gone from a healthy node for the doing of a stranger.
"""

from __future__ import annotations

from datetime import timedelta

from spillway.clouds.base import ClusterClient
from spillway.losses import PodVerdict
from spillway.model import Attempt, JobSpec, PodState, VerdictKind
from spillway.runs.services import Services

UNKNOWN_GRACE = timedelta(seconds=30)
"""For a pod that says nothing of its grace and whose job is not on record."""


def grace_of(pod: PodState, job: JobSpec | None) -> timedelta:
    """The pod's own grace, which is longer than its job's where checkpoints were seen to take longer."""
    return max(pod.grace or timedelta(0), job.grace if job else timedelta(0)) or UNKNOWN_GRACE


def ask_to_end(client: ClusterClient, pod: PodState, job: JobSpec | None) -> None:
    """Delete the pod with its grace; one that is gone is a success."""
    client.stop(pod.name, grace=grace_of(pod, job))


def note_ending(services: Services, attempt: Attempt, kind: VerdictKind, reason: str) -> Attempt:
    """The attempt with the ending on record that it is about to get.

    Its lease is renewed: should whoever asks die, it is known to have run until now.
    """
    services.ledger.renew_lease(attempt, services.clock() + services.configuration.runs.lease)
    return services.ledger.amend(attempt, ending=kind, reason=reason)


def noted_ending(attempt: Attempt) -> PodVerdict | None:
    """What ``note_ending`` has put on record for an open attempt."""
    return PodVerdict(kind=attempt.ending, reason=attempt.reason or "") if attempt.ending else None
