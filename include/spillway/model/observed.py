"""Observed facts: what clusters report, and the snapshot that a decision is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from spillway.model.datasets import DatasetUse
from spillway.model.decisions import Candidate, Destination
from spillway.model.declared import Cluster, Priority
from spillway.model.pools import GPU_RESOURCE, Billing, NodePool, gpus_in_all
from spillway.model.spending import BudgetState


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """What one pod takes, one with GPUs or of ours: ``gpus`` of ``gpu_resource``, which may be parts of GPUs.

    ``attempt`` is its attempt label, None for a foreign pod; ``node`` is None while pending. What a pod does not ask
    for the scheduler takes for 0. ``started_at`` is when the last of its containers began; None until all have.
    """

    name: str
    namespace: str
    gpus: int
    attempt: str | None = None
    node: str | None = None
    cpu_millicores: int = 0
    memory_mib: int = 0
    gpu_resource: str = GPU_RESOURCE
    created_at: datetime | None = field(default=None, compare=False)
    started_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node as its API reports it. ``pool`` is None where no declared pool's selector matches it; ``also_matches`` are
    those whose selectors do as well, and that do not have it.

    ``allocatable_gpus`` are of its pool's ``gpu_resource``: parts of GPUs where it gives them away so.
    ``driver`` is the version of its GPU driver, ``driver_cuda`` the newest CUDA that this supports; None where no label
    tells. ``cpu_millicores`` and ``memory_mib`` are what foreign pods without GPUs leave of it for the others; None
    where the node does not say what it has. ``ready_at`` is since when it is Ready; None while it is not.
    """

    name: str
    pool: str | None
    ready: bool
    schedulable: bool
    allocatable_gpus: int
    driver: str | None = None
    driver_cuda: str | None = None
    cpu_millicores: int | None = None
    memory_mib: int | None = None
    also_matches: tuple[str, ...] = ()
    created_at: datetime | None = field(default=None, compare=False)
    ready_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One reachable cluster: its nodes, our pods and every pod that takes GPUs, foreign and pending ones included.

    ``clock_ahead`` is how far its clock is ahead of the one here, at least; None where its API does not say.
    """

    cluster: Cluster
    nodes: tuple[NodeState, ...]
    pods: tuple[PodUse, ...]
    clock_ahead: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What is promised to an attempt; netted against its own pod by ``attempt``, so never counted twice.

    ``gpu_fraction`` is the part of a GPU where that is less than one; it is asked of its node as one part.
    ``ends_at`` is when it has ended at the latest by what its job says; None where that says nothing. ``displaces`` are
    the attempts that end to make room for it: it needs nothing beside what they leave.
    """

    attempt: str
    department: str
    cluster: str
    pool: str
    billing: Billing
    gpus_per_node: int
    nodes: int
    cpu_millicores_per_node: int = 0
    memory_mib_per_node: int = 0
    ends_at: datetime | None = None
    gpu_fraction: Decimal | None = None
    displaces: tuple[str, ...] = ()

    @property
    def gpus(self) -> Decimal:
        """GPUs in all, to the exact part of one."""
        return gpus_in_all(self.gpus_per_node, self.nodes, self.gpu_fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAttempt:
    """Whether an attempt that holds a reservation may give way, and what that would lose.

    ``interruptible``: its job may be interrupted at any time. ``started_at`` is None while its pod has not started,
    ``committed_at`` where it has committed nothing or nobody knows when. ``moving``: an order to move it is open.
    ``ending``: its pod is asked to end already. ``left_spot``: its run was moved off spot for its deadline. Nobody
    carries it after ``lease_expires_at``.
    """

    attempt: str
    priority: Priority
    interruptible: bool
    lease_expires_at: datetime
    started_at: datetime | None = None
    committed_at: datetime | None = None
    moving: bool = False
    ending: bool = False
    left_spot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run that waits for room and comes before the one that is decided on; ``since`` is when it began to wait.

    ``places`` are the (cluster, pool) pairs where it lacks nothing but room, by the last look for it. Of an ``image``
    that is None no node's driver is too old.
    """

    run: str
    priority: Priority
    since: datetime
    nodes: int
    gpus_per_node: int
    cpu_millicores_per_node: int
    memory_mib_per_node: int
    places: frozenset[tuple[str, str]]
    image: str | None = None
    gpu_fraction: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolDown:
    """A place that lost a pod a moment ago; it is not chosen again before ``until``."""

    cluster: str
    pool: str
    until: datetime
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """Where a dataset comes from and how large it is; ``size_bytes`` is None where nobody has counted or said it.

    ``public_bytes`` is how large its public part is; None where nobody has counted that.
    ``remote_read``: a pod may read it at its home, over the link, at sites that may not store it.
    """

    home: str
    size_bytes: int | None = None
    remote_read: bool = False
    public_bytes: int | None = None

    def size_of(self, use: DatasetUse) -> int | None:
        """How large at most what is read of it is: of a part that nobody has counted as large as the whole."""
        return self.size_bytes if use.part is None or self.public_bytes is None else self.public_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What a job has to do and by when.

    ``work`` is how long it trains in all, ``done`` what of that is committed, ``restart`` what each start costs before
    it trains again. ``moved``: it was taken off spot for its deadline.
    """

    began_at: datetime
    deadline: datetime
    work: timedelta
    done: timedelta
    restart: timedelta
    moved: bool = False

    @property
    def work_left(self) -> timedelta:
        return max(timedelta(), self.work - self.done)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a decision may know. Each declared cluster is in ``clusters`` or, with its cause, in ``unreachable``."""

    taken_at: datetime
    clusters: tuple[ClusterState, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    unreachable_clusters: tuple[Cluster, ...] = ()
    """The declared facts of the clusters in ``unreachable``: they keep their candidates and count in the quotas."""
    misconfigured: frozenset[str] = frozenset()
    """Those in ``unreachable`` that could not even be asked: a Connection or a declared field is missing or wrong."""
    reservations: tuple[Reservation, ...] = ()
    open_attempts: tuple[OpenAttempt, ...] = ()
    """Those behind the reservations, where the policy lets any of them give way."""
    cool_downs: tuple[CoolDown, ...] = ()
    datasets_present: frozenset[tuple[str, str]] = frozenset()
    """(record, cluster) pairs of copies known to be whole at that site; the home of a dataset is one of them. A record
    has the name of its dataset, with the tier behind an ``@`` where it is of a part.

    Nothing follows from a pair that is not there: the site's records may not have been readable.
    """
    datasets: Mapping[str, DatasetFacts] = field(default_factory=dict)
    """By name; one that is not there says that nobody looked, and then no transfer counts in a price."""
    link_rates: Mapping[str, float] = field(default_factory=dict)
    """Bytes a second that the lines of sites were measured to carry, by the name of the site."""
    schedule: Schedule | None = None
    """That of the job; None where it has no deadline, or does not say how long it trains."""
    queue: tuple[QueuedRun, ...] = ()
    """The runs that come first, in their order, and no more than a few of them: only those can be hurt."""
    core_images: Mapping[str, str] = field(default_factory=dict)
    """Why an image counts as core though its own job's data may not be, by the name that the job gives it.

    Nothing follows from one that is not there either: it may not have been asked for, or its registry was silent.
    """
    budgets: tuple[BudgetState, ...] = ()
    """The job's department's, of the months in which the job would run; none of a month that has no limit."""
    requester: str | None = None
    """The DAG that asks for the job; None where a person does."""
    waits_since: datetime | None = None
    """When the job was asked for; None of one that has had a place already."""
    destination: Destination | None = None
    """Where the job is ordered to, where it is: no other place counts then."""

    @property
    def declared(self) -> tuple[Cluster, ...]:
        """Every declared cluster, reachable or not, by name."""
        return tuple(
            sorted((*(s.cluster for s in self.clusters), *self.unreachable_clusters), key=lambda cluster: cluster.name)
        )

    def find_pool(self, place: Candidate) -> NodePool | None:
        """The pool of that place, None where it is not declared."""
        cluster = next((cluster for cluster in self.declared if cluster.name == place.cluster), None)
        return None if cluster is None else cluster.find_pool(place.pool)

    def has(self, use: DatasetUse, site: Cluster) -> bool:
        """Whether all that is read of the dataset is verified to be at the site; so is a part at its home."""
        facts = self.datasets.get(use.name)
        at_home = use.part is not None and facts is not None and facts.home == site.name
        return at_home or (use.record_at(site), site.name) in self.datasets_present


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
    node is being deleted, shut down or drained. ``attempt`` and ``installation`` are what its labels say. Of a gang
    it is the pod that decides, ``others_running`` beside it. Every moment is one of the cluster's clock, also
    ``read_at``, when the API answered; None where that is not known.
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
    installation: str | None = None
    others_running: bool = False
    read_at: datetime | None = field(default=None, compare=False)
