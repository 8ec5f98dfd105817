"""Whether a promise that nobody renews may be taken back."""

from __future__ import annotations

from datetime import timedelta

from spillway.model import Attempt, ClusterState, Snapshot

CLOCK_TOLERANCE = timedelta(seconds=5)
"""How far a cluster's clock and the one here may be apart; of two moments that are nearer, neither is the later one."""


def clock_problem(ahead: timedelta | None) -> str:
    """Why moments of a cluster's clock and of the one here say nothing to each other; empty within the tolerance."""
    if ahead is None or abs(ahead) <= CLOCK_TOLERANCE:
        return ""
    seconds, most = abs(ahead).total_seconds(), CLOCK_TOLERANCE.total_seconds()
    return f"its clock and the one here differ by {seconds:.0f} s, more than {most:.0f} s"


def may_expire(attempt: Attempt, snapshot: Snapshot) -> bool:
    """Whether the attempt's lease is over and its cluster, seen after that, shows none of its pods.

    A cluster that could not be reached, or that is no longer declared, keeps its attempts: a pod may run there unseen.
    So does one whose clock is another than ours: by a clock that is fast every lease is over.
    """
    if attempt.lease_expires_at > snapshot.taken_at:
        return False
    seen = state_at(attempt, snapshot)
    if seen is None or clock_problem(seen.clock_ahead):
        return False
    return all(pod.attempt != attempt.label for pod in seen.pods)


def clocks_agree(snapshot: Snapshot) -> bool:
    """Whether every cluster that was seen has our clock; what no cluster can show may not expire otherwise."""
    return not any(clock_problem(state.clock_ahead) for state in snapshot.clusters)


def state_at(attempt: Attempt, snapshot: Snapshot) -> ClusterState | None:
    """The attempt's cluster as it was seen; None where it was not."""
    return next((state for state in snapshot.clusters if state.cluster.name == attempt.candidate.cluster), None)
