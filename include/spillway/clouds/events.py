"""What the events of a pod tell that its status does not."""

from __future__ import annotations

from collections.abc import Iterable

from spillway.clouds.facts import Json

_EVICTIONS = frozenset({
    "Preempted",  # scheduler
    "Preempting",  # node, for a critical pod
    "TaintManagerEviction",
    "Evicted",  # node, Karpenter
    "Descheduled",
    "ScaleDown",  # cluster autoscaler
    "EvictedByVPA",
})  # fmt: skip


def pull_failure(events: Iterable[Json]) -> str | None:
    """Why the last image pull failed."""
    failures = [event for event in events if (event.get("message") or "").startswith("Failed to pull image")]
    return max(failures, key=_time)["message"] if failures else None


def eviction(events: Iterable[Json]) -> str | None:
    """Who of the platform took the pod away: the reason of the event that says so."""
    taken = [event for event in events if event.get("reason") in _EVICTIONS and not _called_off(event)]
    return max(taken, key=_time)["reason"] if taken else None


def _called_off(event: Json) -> bool:
    """Whether the event says that the pod stays: its node lost the taint again, and the reason is the eviction's."""
    return (event.get("message") or "").startswith("Cancelling")


def _time(event: Json) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""
