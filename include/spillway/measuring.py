"""What was observed at one moment, as a sample of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spillway.model import (
    Attempt,
    AttemptState,
    ClusterState,
    DeviceUse,
    JobDemand,
    JobSpec,
    JobUse,
    NodePool,
    NodeSample,
    NodeState,
    PodStart,
    PodUse,
    PoolSample,
    Sample,
    Snapshot,
)
from spillway.sampling import device_use, merged_demand, merged_use

Places = frozenset[tuple[str, str]]
"""(cluster, pool) pairs."""


LEAST_PART = 0.001
"""Parts of GPUs are rounded down to thousandths."""

_BEFORE_RUNNING = frozenset({AttemptState.RESERVED, AttemptState.STAGED, AttemptState.LAUNCHED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A sample with the nodes and the started pods that were seen for it."""

    sample: Sample
    nodes: tuple[NodeSample, ...]
    starts: tuple[PodStart, ...]


def measure(
    at: datetime,
    seen: Snapshot,
    attempts: Sequence[Attempt],
    waiting: Iterable[tuple[JobSpec, Places]],
    devices: Mapping[tuple[str, str], DeviceUse],
) -> Measured:
    """The sample of that moment.

    Args:
        attempts: all that are open.
        waiting: the job of each run that waits for room, and where it does.
        devices: what the devices of each (cluster, node) told; one that is not there told nothing.
    """
    owners = {attempt.label: attempt.job for attempt in attempts}
    pools = [_Pool(state, pool) for state in seen.clusters for pool in state.cluster.pools]
    demands = [
        *(_demand(job, places, float(job.gpus)) for job, places in waiting),
        *_without_node(attempts, {(pool.cluster, pool.pool.name): pool for pool in pools}),
        *(demand for state in seen.clusters for demand in _foreign(state, owners)),
    ]
    return Measured(
        sample=Sample(
            at=at,
            pools=tuple(pool.sample(owners, devices) for pool in pools),
            queue=merged_demand((demand, 1) for demand in demands),
            unknown=dict(seen.unreachable),
        ),
        nodes=tuple(pool.node_sample(node, at) for pool in pools for node in pool.nodes),
        starts=tuple(start for pool in pools for start in pool.starts()),
    )


class _Pool:
    """A pool of a cluster with its nodes and the pods on each."""

    def __init__(self, state: ClusterState, pool: NodePool) -> None:
        self.cluster, self.pool = state.cluster.name, pool
        self.nodes = [node for node in state.nodes if node.pool == pool.name]
        self.pods: dict[str, list[PodUse]] = {node.name: [] for node in self.nodes}
        for pod in state.pods:
            if pod.node in self.pods:
                self.pods[pod.node].append(pod)

    def gpus_of(self, pod: PodUse) -> float:
        return pod.gpus / self.pool.devices_per_gpu if pod.gpu_resource == self.pool.gpu_resource else 0.0

    def used(self, node: NodeState) -> float:
        return sum(map(self.gpus_of, self.pods[node.name]))

    def usable(self, node: NodeState) -> float:
        """All that a usable node has; of another one what pods still hold."""
        usable = node.ready and node.schedulable
        return node.allocatable_gpus / self.pool.devices_per_gpu if usable else self.used(node)

    def idles(self, node: NodeState) -> bool:
        return node.ready and not self.pods[node.name]

    def bound(self, attempt: str) -> float:
        """The GPUs that pods of the attempt have here."""
        return sum(self.gpus_of(pod) for pods in self.pods.values() for pod in pods if pod.attempt == attempt)

    def sample(self, owners: Mapping[str, JobSpec], devices: Mapping[tuple[str, str], DeviceUse]) -> PoolSample:
        uses = [(_use(pod, self.gpus_of(pod), owners), 1) for pods in self.pods.values() for pod in pods if pod.gpus]
        told = [(devices[self.cluster, name], 1) for name in sorted(self.pods) if (self.cluster, name) in devices]
        return PoolSample(
            cluster=self.cluster,
            pool=self.pool.name,
            gpus=sum(map(self.usable, self.nodes)),
            used_gpus=sum(map(self.used, self.nodes)),
            nodes=sum(1 for node in self.nodes if node.ready),
            idle_nodes=sum(1 for node in self.nodes if self.idles(node)),
            jobs=merged_use(uses),
            device=device_use(told),
            measured=1 if told else 0,
        )

    def node_sample(self, node: NodeState, at: datetime) -> NodeSample:
        return NodeSample(
            cluster=self.cluster,
            pool=self.pool.name,
            name=node.name,
            seen_at=at,
            gpus=self.usable(node),
            used_gpus=self.used(node),
            created_at=node.created_at,
            ready_at=node.ready_at,
            idle_since=at if self.idles(node) else None,
        )

    def starts(self) -> Iterator[PodStart]:
        for pods in self.pods.values():
            for pod in pods:
                if pod.gpus and pod.created_at is not None and pod.started_at is not None:
                    yield PodStart(
                        cluster=self.cluster,
                        pool=self.pool.name,
                        pod=f"{pod.namespace}/{pod.name}",
                        created_at=pod.created_at,
                        started_at=pod.started_at,
                    )


def _use(pod: PodUse, gpus: float, owners: Mapping[str, JobSpec]) -> JobUse:
    return JobUse(gpus=gpus, **_who(owners.get(pod.attempt or "")))


def _demand(job: JobSpec | None, places: Places, gpus: float) -> JobDemand:
    return JobDemand(places=places, runs=1, gpus=gpus, **_who(job))


def _who(job: JobSpec | None) -> dict[str, Any]:
    """What tells the job apart; nothing of what is not ours."""
    if job is None:
        return {"job": None, "department": None}
    return {
        "job": job.name,
        "department": job.department,
        "priority": job.priority,
        "business_scene": job.business_scene,
    }


def _without_node(attempts: Iterable[Attempt], pools: Mapping[tuple[str, str], _Pool]) -> Iterator[JobDemand]:
    """What attempts that have not begun to run have room for, as far as their pods have no node yet."""
    for attempt in attempts:
        place = attempt.candidate.cluster, attempt.candidate.pool
        if place in pools and attempt.state in _BEFORE_RUNNING:
            missing = float(attempt.job.gpus) - pools[place].bound(attempt.label)
            if missing > LEAST_PART:
                yield _demand(attempt.job, frozenset({place}), missing)


def _foreign(state: ClusterState, owners: Mapping[str, JobSpec]) -> Iterator[JobDemand]:
    """Pods of others that take GPUs and have no node."""
    for pod in state.pods:
        fitting = [pool for pool in state.cluster.pools if pool.gpu_resource == pod.gpu_resource]
        if pod.node is None and pod.gpus and pod.attempt not in owners and fitting:
            places = frozenset((state.cluster.name, pool.name) for pool in fitting)
            yield _demand(None, places, max(pod.gpus / pool.devices_per_gpu for pool in fitting))
