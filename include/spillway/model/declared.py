"""Declared facts and policy: what people write down about sites, data, jobs and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
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

    def may_hold(self, tier: Tier) -> bool:
        """Whether data of the tier may be stored here; a site that may store core data may store any."""
        return tier in self.residency or Tier.CORE in self.residency

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
