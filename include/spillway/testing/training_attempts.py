"""Attempts that train on an on-premises cluster, and who of them gives way to a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from spillway.model import JobSpec, OpenAttempt, PlacementPolicy, PodUse, PreemptionPlan, Reservation, Snapshot
from spillway.placement.context import index
from spillway.placement.policy import choose, place
from spillway.placement.preemption import still_needed
from spillway.testing.builders import (
    NOW,
    cluster_state,
    node_pool,
    onprem_cluster,
    open_attempt,
    placement_policy,
    pod,
    reservation,
    snapshot,
)

MINUTE = timedelta(minutes=1)
PREEMPTING = placement_policy(preempt_after=10 * MINUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trains:
    """An attempt that trains: what it holds, its pods, and whether it may give way."""

    promise: Reservation
    pods: tuple[PodUse, ...]
    attempt: OpenAttempt


def trains(
    label: str,
    *,
    on: tuple[str, ...] = ("a100-0",),
    gpus: int = 8,
    committed: float | None = None,
    department: str = "research",
    place: dict[str, Any] | None = None,
    **fields: Any,
) -> Trains:
    """One that committed so many minutes ago, None for never, on these nodes, so many GPUs on each."""
    at = None if committed is None else NOW - committed * MINUTE
    held = {"attempt": label, "department": department, "gpus_per_node": gpus, "nodes": len(on), **(place or {})}
    return Trains(
        promise=reservation(**held),
        pods=tuple(pod(name=f"{label}-{node}", gpus=gpus, node=node, attempt=label) for node in on),
        attempt=open_attempt(attempt=label, committed_at=at, **fields),
    )


def site(*running: Trains, nodes: int = 2, **fields: Any) -> Snapshot:
    """On-premises with so many nodes of eight GPUs, on which these train."""
    cluster = onprem_cluster(pools=(node_pool(max_nodes=nodes),))
    state = cluster_state(cluster, pods=[use for one in running for use in one.pods])
    held = {"reservations": tuple(one.promise for one in running), "open_attempts": tuple(o.attempt for o in running)}
    return replace(snapshot(state), **{**held, **fields})


def plan(job: JobSpec, seen: Snapshot, policy: PlacementPolicy = PREEMPTING) -> PreemptionPlan:
    """What the decision says of who gives way.

    That and the look without the table come to the same place, and where nothing has changed the same are asked to end.
    """
    decision = place(job, seen, policy)
    assert decision.preemption is not None
    assert decision.chosen == decision.preemption.place
    quick = choose(job, index(seen, policy))
    kept = tuple(verdict for verdict in decision.verdicts if verdict.candidate == decision.chosen)
    assert quick == replace(decision, verdicts=kept)
    if decision.chosen is not None:
        named = tuple(victim.attempt for victim in decision.preemption.victims)
        assert still_needed(job, decision.chosen, named, index(seen, policy)) == named
    return decision.preemption


def victims(job: JobSpec, seen: Snapshot, policy: PlacementPolicy = PREEMPTING) -> dict[str, float]:
    """The GPU-seconds that each loses who gives way."""
    return {victim.attempt: victim.lost_gpu_seconds for victim in plan(job, seen, policy).victims}
