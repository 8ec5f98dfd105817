"""What ``clusters.yaml`` may hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from spillway.config import notation
from spillway.config.schema import (
    Amount,
    AnyText,
    Count,
    Day,
    Entry,
    Flag,
    Label,
    Prices,
    Quantity,
    SiteKindWord,
    Text,
    TierWord,
    Unique,
    Words,
)
from spillway.errors import UnknownName
from spillway.model import Cluster, GpuShare, Link, NodePool, RegistryRef, StoreRef

PROVIDERS = ("eks", "kubernetes", "sandbox")


class GpuShareEntry(Entry):
    resource: Annotated[str, Field(strict=True, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")]
    per_gpu: Annotated[int, Field(strict=True, ge=2, le=1000)]
    memory_gib: Count


class PoolEntry(Entry):
    name: Label
    gpu_model: Text
    gpu_memory_gib: Count
    gpus_per_node: Count
    max_nodes: Count
    prices_per_gpu_hour: Prices
    node_selector: Words = Field(default_factory=dict)
    cpu_cores_per_node: Quantity | None = None
    memory_gib_per_node: Quantity | None = None
    prices_as_of: Day | None = None
    fixed_cost_per_month: Amount = Decimal(0)
    gpu_share: GpuShareEntry | None = None

    def pool(self) -> NodePool:
        return NodePool(**dict(self) | {"gpu_share": self.gpu_share and GpuShare(**dict(self.gpu_share))})


class LinkEntry(Entry):
    bandwidth_gbps: Quantity
    egress_price_per_gib: Amount = Decimal(0)


class StoreEntry(Entry):
    connection: Text
    pod_connection: Text
    dataset_bucket: Text
    checkpoint_bucket: Text
    public_connection: Text | None = None
    public_pod_connection: Text | None = None
    cache_bucket: Text | None = None
    cache_connection: Text | None = None


class RegistryEntry(Entry):
    connection: Text
    prefix: AnyText = ""


def _provider(written: Any) -> str:
    if written not in PROVIDERS:
        raise notation.refused(str(UnknownName("provider", str(written), PROVIDERS)))
    return str(written)


class ClusterEntry(Entry):
    name: Label
    kind: SiteKindWord
    provider: Annotated[str, BeforeValidator(_provider)]
    connection: Text
    namespace: Label
    region: Text
    link: LinkEntry
    object_store: StoreEntry
    registry: RegistryEntry
    residency: frozenset[TierWord]
    low_latency: Flag | None = None
    pools: Annotated[tuple[PoolEntry, ...], Field(min_length=1), Unique]

    def cluster(self) -> Cluster:
        return Cluster(
            **dict(self)
            | {
                "link": Link(**dict(self.link)),
                "object_store": StoreRef(**dict(self.object_store)),
                "registry": RegistryRef(**dict(self.registry)),
                "pools": tuple(entry.pool() for entry in self.pools),
            }
        )


class ClustersFile(Entry):
    clusters: Annotated[tuple[ClusterEntry, ...], Field(min_length=1), Unique]
