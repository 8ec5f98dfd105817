"""Whether a promise that nobody renews may be taken back."""

from __future__ import annotations

from spillway.model import Attempt, Snapshot


def may_expire(attempt: Attempt, snapshot: Snapshot) -> bool:
    """Whether the attempt's lease is over and its cluster, seen after that, shows none of its pods.

    A cluster that could not be reached, or that is no longer declared, keeps its attempts: a pod may run there unseen.
    """
    if attempt.lease_expires_at > snapshot.taken_at:
        return False
    seen = next((state for state in snapshot.clusters if state.cluster.name == attempt.candidate.cluster), None)
    return seen is not None and all(pod.attempt != attempt.label for pod in seen.pods)
