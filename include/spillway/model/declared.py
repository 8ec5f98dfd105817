"""Declared facts and policy: what people write down about sites, data, jobs and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from spillway.model.pools import Billing, NodePool
from spillway.model.spending import Budget


class Priority(StrEnum):
    """Five levels, the highest first."""

    PRODUCTION_CORE = "production-core"
    PRODUCTION_REGULAR = "production-regular"
    CUSTOMER_SERVICE = "customer-service"
    RESEARCH = "research"
    EXPLORATION = "exploration"

    @property
    def level(self) -> int:
        """0 is the highest."""
        return _LEVELS[self]


_LEVELS = {priority: level for level, priority in enumerate(Priority)}


class SecondChoice(StrEnum):
    """Where a priority goes when on-premises is full: ``HIGH_PERFORMANCE`` is a cloud pool that nobody reclaims."""

    HIGH_PERFORMANCE = "high-performance"
    SPOT = "spot"


SECOND_CHOICES: Mapping[Priority, SecondChoice] = {
    Priority.PRODUCTION_CORE: SecondChoice.HIGH_PERFORMANCE,
    Priority.PRODUCTION_REGULAR: SecondChoice.HIGH_PERFORMANCE,
    Priority.CUSTOMER_SERVICE: SecondChoice.HIGH_PERFORMANCE,
    Priority.RESEARCH: SecondChoice.SPOT,
    Priority.EXPLORATION: SecondChoice.SPOT,
}
"""Those of priorities for which nobody declares another one."""


class SiteKind(StrEnum):
    ONPREM = "onprem"
    CLOUD = "cloud"


class Tier(StrEnum):
    """How sensitive data is; where data of a tier may be stored is for ``Cluster.may_hold`` alone to say."""

    CORE = "core"
    PUBLIC = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The line between a site and the on-premises one."""

    bandwidth_gbps: float
    egress_price_per_gib: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRef:
    """Where a site keeps its objects: Connections and a bucket per purpose.

    ``connection`` is the mover's identity, ``pod_connection`` the one that training pods get. ``public_connection``,
    where there is one, can read public datasets only: the mover reads with it what goes to a site without core data.
    ``public_pod_connection`` is the one that pods get which read the public part of a dataset: it reads public data and
    the records of parts, and reads and writes checkpoints; None: such pods do not run where core data is.
    ``cache_bucket`` is where pods keep, encrypted, what they read of core data of other sites, as ``cache_connection``,
    which is for nothing else; None: nowhere.
    """

    connection: str
    pod_connection: str
    dataset_bucket: str
    checkpoint_bucket: str
    public_connection: str | None = None
    public_pod_connection: str | None = None
    cache_bucket: str | None = None
    cache_connection: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRef:
    """Where a site keeps its images: the name of a Connection, and a path before every repository."""

    connection: str
    prefix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusRef:
    """Where the figures of a cluster's GPUs are: the name of a Connection, and how its series are told from others.

    ``node_label`` is the label with the node's name as Kubernetes has it, ``labels`` are what all its series have.
    """

    connection: str
    node_label: str = "Hostname"
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One Kubernetes cluster and the object store and registry beside it.

    ``low_latency``: whether latency-sensitive jobs may run here; None leaves that to its kind, see ``is_low_latency``.
    ``prometheus`` knows what its GPUs do; None where nobody does.
    """

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
    low_latency: bool | None = None
    prometheus: PrometheusRef | None = None

    @property
    def is_low_latency(self) -> bool:
        """As declared; where nothing is said only an on-premises site is."""
        return self.kind is SiteKind.ONPREM if self.low_latency is None else self.low_latency

    def may_hold(self, tier: Tier) -> bool:
        """Whether data of the tier may be stored here; a site that may store core data may store any."""
        return tier in self.residency or Tier.CORE in self.residency

    def pool(self, name: str) -> NodePool:
        return next(pool for pool in self.pools if pool.name == name)

    def find_pool(self, name: str) -> NodePool | None:
        """The pool, None where none of that name is declared any more."""
        return next((pool for pool in self.pools if pool.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageUse:
    """That a job file uses an image, for data of a tier.

    ``dataset`` is the only one that the file names, declared or not; None where it names none, several, or a public
    part alone.
    ``unclear_in`` is the name of a file that does not say clearly of which tier its data is, which counts as core, and
    ``mistake`` what is wrong with what it says of its data; None where it says nothing.
    """

    job: str
    image: str
    tier: Tier
    dataset: str | None = None
    unclear_in: str | None = None
    mistake: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredRepository:
    """A repository whose tags are mirrored from the home of images to other sites.

    ``tags`` and ``exclude`` are shell patterns; a tag is wanted that matches one of the first and none of the second.
    ``sites`` and ``platforms`` mean all where they are empty. ``signatures``: whether tags that belong to another image
    (signatures, attestations, SBOMs) go with it. ``move_tags``: whether a tag that has another digest at a site is
    overwritten there. ``delete``: whether a tag that the source no longer has is deleted at the sites.
    """

    repository: str
    tags: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    tier: Tier = Tier.CORE
    sites: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    signatures: bool = True
    move_tags: bool = False
    delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaShare:
    """A department's part of the declared maximum capacity of each kind of site, in [0, 1]."""

    onprem: Decimal
    cloud: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudAccess:
    """What a department may use of clouds: these clusters (None: every one), bought so.

    ``dags`` are shell patterns of the DAGs that may ask for it; any, and people too, where there are none.
    """

    clusters: frozenset[str] | None
    billing: frozenset[Billing]
    dags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRules:
    """How long a job that wants room waits for on-premises before it buys any.

    Every job waits for ``everybody``. One of ``from_gpus`` that is thought to take ``from_gpu_hours`` or more waits in
    proportion to its cost: for ``share`` of the time that it is expected to train, and no longer than ``longest``. The
    more GPUs a job has the more an hour of its wait saves: one of twice as many waits from half the GPU-hours on.
    """

    everybody: timedelta = timedelta()
    from_gpus: int = 1
    from_gpu_hours: Decimal = Decimal(0)
    share: Decimal = Decimal(0)
    longest: timedelta = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """Declared policy of placement. ``weights`` is by scorer name; quotas is by department, absent = no GPUs.

    A department without one of ``budgets`` may spend without a limit. ``time_zone`` is the one whose months count.
    ``cloud_access`` is by department, absent = no cloud; None of decisions that are older than this rule.
    ``price_max_age``: how old a price of bought GPUs may be to be believed, None for any age.
    ``borrowing``: whether jobs that may be interrupted also take what other departments leave of their quotas.
    ``second_choice`` has every priority. ``preempt_after``: how long a run is left to train before it may give way to
    a job that comes first; None: no run ever gives way. ``waiting``: how long a job waits for on-premises before it
    buys; None: it never does.
    """

    weights: Mapping[str, Decimal]
    quotas: Mapping[str, QuotaShare]
    budgets: tuple[Budget, ...] = ()
    time_zone: str = "UTC"
    cloud_access: Mapping[str, CloudAccess] | None = None
    borrowing: bool = False
    price_max_age: timedelta | None = None
    second_choice: Mapping[Priority, SecondChoice] = field(default_factory=lambda: SECOND_CHOICES)
    preempt_after: timedelta | None = None
    waiting: WaitRules | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """Declared policy of carrying runs out.

    ``cool_down``: how long a place that lost a pod is avoided. ``lease``: how long a reservation outlives its owner.
    ``startup_limit``: how long a pod may take until it runs. ``node_margin``: how long past its grace a pod on a lost
    node or an unreachable cluster is waited for before the run goes on elsewhere. ``attempts_without_progress``: so
    many in a row that were lost before they committed a step end the run; ``stalls_without_progress``: that stalled.
    """

    cool_down: timedelta = timedelta(minutes=5)
    lease: timedelta = timedelta(minutes=10)
    startup_limit: timedelta = timedelta(minutes=20)
    node_margin: timedelta = timedelta(seconds=30)
    attempts_without_progress: int = 3
    stalls_without_progress: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Declared policy of which committed checkpoints stay: each that any of the rules keeps.

    ``last``: the newest ones. ``every_steps``: multiples of it, 0 for none. ``best``: so many by ``metric``, a key of
    their manifests' metrics. ``minimum_age``: younger ones stay; longer than anybody takes to read a checkpoint.
    """

    last: int = 3
    every_steps: int = 0
    best: int = 1
    metric: str = "loss"
    highest_is_best: bool = False
    minimum_age: timedelta = timedelta(hours=1)
