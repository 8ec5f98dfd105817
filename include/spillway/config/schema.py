"""What the files may hold: one class a mapping, each building its value of ``model``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from spillway.config import notation
from spillway.errors import UnknownName
from spillway.model import (
    Billing,
    Cluster,
    Dataset,
    JobSpec,
    Link,
    NodePool,
    PlacementPolicy,
    Priority,
    QuotaShare,
    RegistryRef,
    RunPolicy,
    SiteKind,
    StoreRef,
    Tier,
)
from spillway.placement.scorers import SCORERS

PROVIDERS = ("eks", "kubernetes", "sandbox")

Text = Annotated[str, Field(strict=True, min_length=1)]
Label = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
"""A DNS label, as Kubernetes names are."""
Prefix = Annotated[str, Field(strict=True, pattern=r"^([^/].*/)?$")]
"""Empty, or a path that ends with a slash and does not begin with one."""
Count = Annotated[int, Field(strict=True, ge=1)]
Gibibytes = Annotated[int, Field(strict=True, ge=0)]
Quantity = Annotated[float, Field(strict=True, gt=0)]
Flag = Annotated[bool, Field(strict=True)]
Amount = Annotated[Decimal, BeforeValidator(notation.amount)]
Share = Annotated[Decimal, BeforeValidator(notation.share)]
Duration = Annotated[timedelta, BeforeValidator(notation.duration)]
Lasting = Annotated[timedelta, BeforeValidator(notation.lasting)]
AnyText = Annotated[str, Field(strict=True)]
Words = dict[Text, AnyText]
Prices = Annotated[dict[Billing, Decimal], BeforeValidator(notation.prices)]
PriorityWord = Annotated[Priority, BeforeValidator(notation.choice(Priority, "priority"))]
TierWord = Annotated[Tier, BeforeValidator(notation.choice(Tier, "tier"))]
SiteKindWord = Annotated[SiteKind, BeforeValidator(notation.choice(SiteKind, "kind of site"))]


class Entry(BaseModel):
    """A mapping of a file; a key that it does not have is refused by name, before any missing one."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_key(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    raise notation.refused(str(UnknownName("key", str(key), cls.model_fields)))
        return data


class Named(Protocol):
    @property
    def name(self) -> str: ...


def _names_differ(entries: tuple[Named, ...]) -> tuple[Named, ...]:
    names = [entry.name for entry in entries]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise notation.refused(
                f"'{name}' is declared twice ([{names.index(name)}] and [{index}]); names are unique"
            )
    return entries


Unique = AfterValidator(_names_differ)


class PoolEntry(Entry):
    name: Label
    gpu_model: Text
    gpu_memory_gib: Count
    gpus_per_node: Count
    max_nodes: Count
    prices_per_gpu_hour: Prices
    node_selector: Words = {}


class LinkEntry(Entry):
    bandwidth_gbps: Quantity
    egress_price_per_gib: Amount = Decimal(0)


class StoreEntry(Entry):
    connection: Text
    pod_connection: Text
    dataset_bucket: Text
    checkpoint_bucket: Text


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
    pools: Annotated[tuple[PoolEntry, ...], Field(min_length=1), Unique]

    def cluster(self) -> Cluster:
        return Cluster(
            **dict(self)
            | {
                "link": Link(**dict(self.link)),
                "object_store": StoreRef(**dict(self.object_store)),
                "registry": RegistryRef(**dict(self.registry)),
                "pools": tuple(NodePool(**dict(pool)) for pool in self.pools),
            }
        )


class ClustersFile(Entry):
    clusters: Annotated[tuple[ClusterEntry, ...], Field(min_length=1), Unique]


class DatasetEntry(Entry):
    name: Text
    home: Text
    prefix: Prefix
    tier: TierWord = Tier.CORE

    def dataset(self) -> Dataset:
        return Dataset(**dict(self))


class DatasetsFile(Entry):
    datasets: Annotated[tuple[DatasetEntry, ...], Unique]


class QuotaEntry(Entry):
    onprem: Share
    cloud: Share


def _weights(written: Any) -> Mapping[str, Decimal]:
    if not isinstance(written, Mapping):
        raise notation.refused(f"expected a weight by scorer ({', '.join(SCORERS)}), got {written!r}")
    weights = {}
    for name, weight in written.items():
        if name not in SCORERS:
            raise notation.refused(str(UnknownName("scorer", name, SCORERS)))
        with notation.naming(name):
            weights[name] = notation.amount(weight)
    if not any(weights.values()):
        raise notation.refused("expected at least one weight above 0")
    return weights


def _shares_fit(quotas: dict[str, QuotaEntry]) -> dict[str, QuotaEntry]:
    for side in ("onprem", "cloud"):
        total = sum(getattr(quota, side) for quota in quotas.values())
        if total > 1:
            raise notation.refused(f"the {side} shares add up to {total}, expected at most 1")
    return quotas


class PlacementEntry(Entry):
    weights: Annotated[dict[str, Decimal], BeforeValidator(_weights)]
    quotas: Annotated[dict[Text, QuotaEntry], AfterValidator(_shares_fit)]

    def policy(self) -> PlacementPolicy:
        quotas = {department: QuotaShare(**dict(quota)) for department, quota in self.quotas.items()}
        return PlacementPolicy(weights=self.weights, quotas=quotas)


class RunsEntry(Entry):
    """Every key may be left out; ``RunPolicy`` has the defaults."""

    cool_down: Duration | None = None
    lease: Lasting | None = None
    startup_limit: Lasting | None = None
    node_margin: Duration | None = None
    attempts_without_progress: Count | None = None

    def policy(self) -> RunPolicy:
        return RunPolicy(**self.model_dump(exclude_none=True))


class PolicyFile(Entry):
    placement: PlacementEntry
    runs: RunsEntry = RunsEntry()


class JobFile(Entry):
    name: Label
    department: Text
    priority: PriorityWord
    image: Text
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    gpus_per_node: Count
    nodes: Count = 1
    gpu_model: Text | None = None
    gpu_memory_gib: Gibibytes = 0
    cpu_cores: Quantity = 1.0
    memory_gib: Quantity = 1.0
    dataset: Text | None = None
    tier: TierWord | None = None
    latency_sensitive: Flag = False
    spot_ok: Flag = False
    expected_duration: Lasting | None = None
    grace: Duration = timedelta(seconds=30)
    environment: Words = {}
    pod_overrides: dict[str, JsonValue] = {}

    def job(self, tier: Tier) -> JobSpec:
        return JobSpec(**dict(self) | {"tier": tier})
