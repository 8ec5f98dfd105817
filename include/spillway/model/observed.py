"""Observed facts: what clusters report, and the snapshot that a decision is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from spillway.model.declared import Billing, Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """What one pod takes. ``attempt`` is its attempt label, None for a foreign pod; ``node`` is None while pending."""

    name: str
    namespace: str
    gpus: int
    attempt: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node as its API reports it. ``pool`` is None where no declared pool's selector matches it."""

    name: str
    pool: str | None
    ready: bool
    schedulable: bool
    allocatable_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One reachable cluster: its nodes and every pod that takes GPUs, foreign and pending ones included."""

    cluster: Cluster
    nodes: tuple[NodeState, ...]
    pods: tuple[PodUse, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """GPUs promised to an attempt; netted against its own pod by ``attempt``, so never counted twice."""

    attempt: str
    department: str
    cluster: str
    pool: str
    billing: Billing
    gpus_per_node: int
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolDown:
    """A place that lost a pod a moment ago; it is not chosen again before ``until``."""

    cluster: str
    pool: str
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a decision may know. Each declared cluster is in ``clusters`` or, with its cause, in ``unreachable``."""

    taken_at: datetime
    clusters: tuple[ClusterState, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    unreachable_clusters: tuple[Cluster, ...] = ()
    """The declared facts of the clusters in ``unreachable``: they keep their candidates and count in the quotas."""
    reservations: tuple[Reservation, ...] = ()
    cool_downs: tuple[CoolDown, ...] = ()
    datasets_present: frozenset[tuple[str, str]] = frozenset()
    """(dataset, cluster) pairs verified to be whole at that site; the home of a dataset is one of them."""

    @property
    def declared(self) -> tuple[Cluster, ...]:
        """Every declared cluster, reachable or not, by name."""
        return tuple(
            sorted((*(s.cluster for s in self.clusters), *self.unreachable_clusters), key=lambda cluster: cluster.name)
        )


class PodPhase(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """A pod as its API reports it, with what is known of its node; plain facts, not yet judged.

    ``exit_code``, ``container_reason`` and ``container_message`` are of the trainer's container, ``message`` is of the
    pod or its scheduling. ``node_changed_at`` is when ``node_ready`` last changed; ``node_deleted`` is True while the
    node is being deleted, shut down or drained. Of a gang it is the pod that decides, ``others_running`` beside it.
    """

    name: str
    phase: PodPhase
    cluster: str = ""
    image: str = ""
    uid: str | None = None
    node: str | None = None
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    container_reason: str = ""
    container_message: str = ""
    disruption: str | None = None
    grace: timedelta | None = None
    created_at: datetime | None = None
    deleted_at: datetime | None = None
    node_ready: bool | None = None
    node_changed_at: datetime | None = None
    node_exists: bool | None = None
    node_deleted: bool = False
    scheduled: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempt: str | None = None
    others_running: bool = False
