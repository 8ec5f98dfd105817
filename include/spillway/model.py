"""The values that flow between observing, deciding and applying.

All are frozen and keyword-only; moments are aware UTC datetimes, durations timedeltas, money is Decimal, and the unit
is in the name. Configuration is validated into these same classes (``config.py``), XCom carries them through ``codec``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any


class Priority(StrEnum):
    """Five levels, the highest first."""

    PRODUCTION_CORE = "production-core"
    PRODUCTION_REGULAR = "production-regular"
    CUSTOMER_SERVICE = "customer-service"
    RESEARCH = "research"
    EXPLORATION = "exploration"


class Billing(StrEnum):
    """How a GPU-hour is paid for. ``OWNED`` is the on-premises marginal price, which may be 0 when configured so."""

    OWNED = "owned"
    RESERVED = "reserved"
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class SiteKind(StrEnum):
    ONPREM = "onprem"
    CLOUD = "cloud"


class Tier(StrEnum):
    """Core data is never stored off its home site; public data may be copied to any site."""

    CORE = "core"
    PUBLIC = "public"


# -- declared facts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Nodes of one shape. ``max_nodes`` is the declared maximum: quota shares are of it, not of what runs now."""

    name: str
    gpu_model: str
    gpu_memory_gib: int
    gpus_per_node: int
    max_nodes: int
    prices_per_gpu_hour: Mapping[Billing, Decimal]
    node_selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_gpus(self) -> int:
        return self.gpus_per_node * self.max_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The line between a site and the on-premises one."""

    bandwidth_gbps: float
    egress_price_per_gib: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRef:
    """Where a site keeps its objects: two Connections and a bucket per purpose.

    ``connection`` is the mover's identity, ``pod_connection`` the one that training pods get.
    """

    connection: str
    pod_connection: str
    dataset_bucket: str
    checkpoint_bucket: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRef:
    """Where a site keeps its images: the name of a Connection, and a path before every repository."""

    connection: str
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One Kubernetes cluster and the object store and registry beside it."""

    name: str
    kind: SiteKind
    provider: str
    connection: str
    namespace: str
    region: str
    pools: tuple[NodePool, ...]
    link: Link
    object_store: StoreRef
    registry: RegistryRef
    residency: frozenset[Tier]

    def pool(self, name: str) -> NodePool:
        return next(pool for pool in self.pools if pool.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A folder of objects at its home site. ``prefix`` ends with a slash or is empty."""

    name: str
    home: str
    prefix: str
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job as its user declares it. GPUs are counted per node; ``nodes`` run as one gang."""

    name: str
    department: str
    priority: Priority
    image: str
    command: tuple[str, ...]
    gpus_per_node: int
    nodes: int = 1
    gpu_model: str | None = None
    gpu_memory_gib: int = 0
    cpu_cores: float = 1.0
    memory_gib: float = 1.0
    dataset: str | None = None
    tier: Tier = Tier.CORE
    latency_sensitive: bool = False
    spot_ok: bool = False
    expected_duration: timedelta | None = None
    grace: timedelta = timedelta(seconds=30)
    environment: Mapping[str, str] = field(default_factory=dict)
    pod_overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaShare:
    """A department's part of the declared maximum capacity of each kind of site, in [0, 1]."""

    onprem: Decimal
    cloud: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """Declared policy of placement. ``weights`` is by scorer name; quotas is by department, absent = no GPUs."""

    weights: Mapping[str, Decimal]
    quotas: Mapping[str, QuotaShare]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """Declared policy of carrying runs out.

    ``cool_down``: how long a place that lost a pod is avoided. ``lease``: how long a reservation outlives its owner.
    ``startup_limit``: how long a pod may take until it runs. ``node_margin``: how long past its grace a pod on a lost
    node or an unreachable cluster is waited for before the run goes on elsewhere.
    """

    cool_down: timedelta = timedelta(minutes=5)
    lease: timedelta = timedelta(minutes=10)
    startup_limit: timedelta = timedelta(minutes=20)
    node_margin: timedelta = timedelta(seconds=30)
    attempts_without_progress: int = 3


# -- observed facts ---------------------------------------------------------------------------------------------------


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
    gpu_model: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


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


# -- decisions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    cluster: str
    pool: str
    billing: Billing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a candidate is out. ``waits`` is True where time alone can change it (full now), False where it cannot."""

    rule: str
    reason: str
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementVerdict:
    """One row of the table of candidates. ``scores`` are normalised terms in [0, 1], ``total`` their weighted sum."""

    candidate: Candidate
    rejections: tuple[Rejection, ...]
    scores: Mapping[str, float]
    total: float
    price_per_gpu_hour: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """``chosen`` is None when nothing fits now; ``possible`` tells waiting from never."""

    job: str
    taken_at: datetime
    chosen: Candidate | None
    possible: bool
    verdicts: tuple[PlacementVerdict, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)


# -- apply ------------------------------------------------------------------------------------------------------------


class AttemptState(StrEnum):
    """The one state machine: each attempt passes these in order and may be settled from any of them."""

    RESERVED = "reserved"
    STAGED = "staged"
    LAUNCHED = "launched"
    RUNNING = "running"
    SETTLED = "settled"


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    PREEMPTED = "preempted"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a run at one place: a row of the ledger. ``run`` is a DNS label, ``number`` starts at 1."""

    run: str
    number: int
    job: JobSpec
    state: AttemptState
    candidate: Candidate
    reserved_at: datetime
    lease_expires_at: datetime
    image_digest: str | None = None
    pod_uid: str | None = None
    node: str | None = None
    resumed_from_step: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    committed_step: int | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def label(self) -> str:
        """The value of the attempt label on the pod and of its reservation; also the pod's name."""
        return f"{self.run}-{self.number}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEntry:
    """One booking; its identity is (cluster, pod_uid, attempt)."""

    cluster: str
    pod_uid: str
    attempt: str
    department: str
    job: str
    billing: Billing
    gpus: int
    gpu_hours: Decimal
    price_per_gpu_hour: Decimal
    amount: Decimal
    started_at: datetime
    ended_at: datetime


# -- bytes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object. ``etag`` means "unchanged since we read it" and nothing else; ``sha256`` (hex) is its content."""

    key: str
    size_bytes: int
    etag: str
    modified_at: datetime | None = None
    sha256: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """A named file of a checkpoint; its bytes live under their sha256 (hex)."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """A committed step of one attempt; ``data_cursor`` and ``metrics`` are the trainer's own plain JSON."""

    run: str
    step: int
    attempt: int
    world_size: int
    parts: tuple[CheckpointPart, ...]
    data_cursor: Mapping[str, Any]
    metrics: Mapping[str, Any]
    created_at: datetime

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)
