"""What ``clusters.yaml`` may hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from spillway.config import notation
from spillway.config.schema import (
    MOST,
    Amount,
    AnyText,
    Count,
    Day,
    Entry,
    Flag,
    HoursEntry,
    Label,
    Lasting,
    Prices,
    Quantity,
    SiteKindWord,
    Text,
    TierWord,
    Unique,
    WholeGpus,
    Words,
)
from spillway.errors import UnknownName
from spillway.model import (
    Billing,
    Cluster,
    GpuShare,
    Link,
    NodePool,
    PrometheusRef,
    RegistryRef,
    ReservedContract,
    ScaledBy,
    StoreRef,
)

LabelName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""As Prometheus has them."""

PROVIDERS = ("eks", "kubernetes", "sandbox")


class GpuShareEntry(Entry):
    resource: Annotated[str, Field(strict=True, pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$")]
    per_gpu: Annotated[int, Field(strict=True, ge=2, le=1000)]
    memory_gib: Count


_OF_GPUS = ("gpu_model", "gpu_memory_gib", "prices_per_gpu_hour")
_OF_CORES = ("prices_per_core_hour", "cpu_cores_per_node", "memory_gib_per_node", "node_selector")
"""What a pool with and one without GPUs has to say; without labels of its nodes CPU work might land on GPU nodes."""


class OffPeakEntry(HoursEntry):
    prices_per_hour: Prices | None = None


class ReservedEntry(Entry):
    gpus: Count
    paid: Flag = False
    cost_per_month: Amount = Decimal(0)


_OF_PROVIDERS = {
    "eks": ("connection", "cluster", "node_group"),
    "placeholders": (),
    "sandbox": ("connection", "node_group"),
}
"""What scales a pool, and what has to be said of each."""


def _scaling_provider(written: Any) -> str:
    if written not in _OF_PROVIDERS:
        raise notation.refused(str(UnknownName("provider of nodes", str(written), _OF_PROVIDERS)))
    return str(written)


class ScaledByEntry(Entry):
    provider: Annotated[str, BeforeValidator(_scaling_provider)]
    connection: Text | None = None
    cluster: Text | None = None
    node_group: Text | None = None
    image: Text | None = None
    min_nodes: Annotated[int, Field(strict=True, ge=0, le=MOST)] = 0
    boot_allowance: Lasting | None = None

    @model_validator(mode="after")
    def _what_its_provider_needs(self) -> ScaledByEntry:
        needed = _OF_PROVIDERS[self.provider]
        known = (*needed, *(("image",) if self.provider == "placeholders" else ()))
        for key in ("connection", "cluster", "node_group", "image"):
            if getattr(self, key) is not None and key not in known:
                raise notation.refused(f"{key} is not for provider '{self.provider}'; leave it out")
            if getattr(self, key) is None and key in needed:
                raise notation.refused(f"{key} is missing, which provider '{self.provider}' needs")
        return self

    def scaled_by(self) -> ScaledBy:
        return ScaledBy(**self.model_dump(exclude_none=True))


class PoolEntry(Entry):
    name: Label
    gpus_per_node: WholeGpus
    max_nodes: Count
    gpu_model: Text | None = None
    gpu_memory_gib: Annotated[int, Field(strict=True, ge=1, le=MOST)] | None = None
    prices_per_gpu_hour: Prices | None = None
    prices_per_core_hour: Prices | None = None
    node_selector: Words = Field(default_factory=dict)
    cpu_cores_per_node: Quantity | None = None
    memory_gib_per_node: Quantity | None = None
    prices_as_of: Day | None = None
    fixed_cost_per_month: Amount = Decimal(0)
    gpu_share: GpuShareEntry | None = None
    off_peak: OffPeakEntry | None = None
    reserved: ReservedEntry | None = None
    scaled_by: ScaledByEntry | None = None

    @model_validator(mode="after")
    def _what_its_kind_needs(self) -> PoolEntry:
        kind = "with GPUs" if self.gpus_per_node else "without GPUs (gpus_per_node: 0)"
        needed, unfit = (
            (_OF_GPUS, _OF_CORES[:1]) if self.gpus_per_node else (_OF_CORES, (*_OF_GPUS, "gpu_share", "reserved"))
        )
        said = [key for key in unfit if getattr(self, key)]
        missing = [key for key in needed if not getattr(self, key)]
        if said:
            raise notation.refused(f"{said[0]} is not for a pool {kind}; leave it out")
        if missing:
            raise notation.refused(f"{missing[0]} is missing, which a pool {kind} needs")
        return self

    @model_validator(mode="after")
    def _off_peak_is_no_dearer(self) -> PoolEntry:
        usual = self.prices_per_gpu_hour or self.prices_per_core_hour or {}
        for billing, price in ((self.off_peak and self.off_peak.prices_per_hour) or {}).items():
            if billing not in usual or price > usual[billing]:
                known = f"the usual one is {usual[billing]}" if billing in usual else "there is no usual one"
                raise notation.refused(
                    f"off_peak.prices_per_hour.{billing} is {price}, and {known}; expected at most that"
                )
        return self

    @model_validator(mode="after")
    def _reserved_are_gpus_of_it(self) -> PoolEntry:
        if self.reserved is None:
            return self
        if Billing.RESERVED not in (self.prices_per_gpu_hour or {}):
            raise notation.refused("reserved needs the price 'reserved' in prices_per_gpu_hour")
        most = self.gpus_per_node * self.max_nodes
        if self.reserved.gpus > most:
            raise notation.refused(
                f"reserved.gpus is {self.reserved.gpus}, and the pool never has more than {most} GPUs"
            )
        if self.reserved.cost_per_month and not self.reserved.paid:
            raise notation.refused(
                "reserved.cost_per_month is of GPUs that are paid for; without `paid: true` each hour of them is paid "
                "by its price"
            )
        return self

    @model_validator(mode="after")
    def _what_is_scaled_has_gpus(self) -> PoolEntry:
        if self.scaled_by is not None and not self.gpus_per_node:
            raise notation.refused(
                "scaled_by is for pools with GPUs, and gpus_per_node is 0: the scaler counts GPUs, so that these nodes "
                "would never be needed nor idle; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _at_least_is_no_more_than_at_most(self) -> PoolEntry:
        if self.scaled_by is not None and self.scaled_by.min_nodes > self.max_nodes:
            raise notation.refused(
                f"scaled_by.min_nodes is {self.scaled_by.min_nodes}, and max_nodes is {self.max_nodes}"
            )
        return self

    def pool(self) -> NodePool:
        share = self.gpu_share and GpuShare(**dict(self.gpu_share))
        off_peak = self.off_peak and self.off_peak.off_peak(self.off_peak.prices_per_hour)
        said = {name: value for name, value in dict(self).items() if value is not None}
        reserved = self.reserved and ReservedContract(**dict(self.reserved))
        scaled_by = self.scaled_by and self.scaled_by.scaled_by()
        parts = {"gpu_share": share, "off_peak": off_peak, "reserved": reserved, "scaled_by": scaled_by}
        return NodePool(**said | parts)


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


class PrometheusEntry(Entry):
    connection: Text
    node_label: LabelName = "Hostname"
    labels: dict[LabelName, Text] = Field(default_factory=dict)


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
    prometheus: PrometheusEntry | None = None
    pools: Annotated[tuple[PoolEntry, ...], Field(min_length=1), Unique]

    def cluster(self) -> Cluster:
        return Cluster(
            **dict(self)
            | {
                "link": Link(**dict(self.link)),
                "object_store": StoreRef(**dict(self.object_store)),
                "registry": RegistryRef(**dict(self.registry)),
                "pools": tuple(entry.pool() for entry in self.pools),
                "prometheus": self.prometheus and PrometheusRef(**dict(self.prometheus)),
            }
        )


class ClustersFile(Entry):
    clusters: Annotated[tuple[ClusterEntry, ...], Field(min_length=1), Unique]
