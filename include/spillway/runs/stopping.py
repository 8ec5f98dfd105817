"""Ask a pod to end so that its last checkpoint is kept."""

from __future__ import annotations

from datetime import timedelta

from spillway.clouds.base import ClusterClient
from spillway.model import JobSpec, PodState

UNKNOWN_GRACE = timedelta(seconds=30)
"""For a pod that says nothing of its grace and whose job is not on record."""


def grace_of(pod: PodState, job: JobSpec | None) -> timedelta:
    """The pod's own grace, which is longer than its job's where checkpoints were seen to take longer."""
    return max(pod.grace or timedelta(0), job.grace if job else timedelta(0)) or UNKNOWN_GRACE


def ask_to_end(client: ClusterClient, pod: PodState, job: JobSpec | None) -> None:
    """Delete the pod with its grace; one that is gone is a success."""
    client.stop(pod.name, grace=grace_of(pod, job))
