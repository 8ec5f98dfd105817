"""What the files may hold: one class a mapping, each building its value of ``model``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Protocol

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from spillway.config import notation
from spillway.errors import UnknownName
from spillway.model import (
    SECOND_CHOICES,
    Billing,
    CloudAccess,
    MirroredRepository,
    OffPeak,
    PlacementPolicy,
    Priority,
    QuotaShare,
    Retention,
    RunPolicy,
    SampleRetention,
    SecondChoice,
    SiteKind,
    Tier,
)
from spillway.placement.scorers import SCORERS
from spillway.windows import Iteration

Text = Annotated[str, Field(strict=True, min_length=1)]
Label = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
"""A DNS label, as Kubernetes names are."""
VariableName = Annotated[str, Field(strict=True, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
"""A name that every Kubernetes takes for a variable of a container."""
Prefix = Annotated[str, Field(strict=True, pattern=r"^([^/].*/)?$")]
"""Empty, or a path that ends with a slash and does not begin with one."""
TagPattern = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9._*?\[\]!-]+$")]
"""A shell pattern of characters that tags are made of."""
Platform = Annotated[str, Field(strict=True, pattern=r"^[a-z0-9]+/[a-z0-9]+(/[a-z0-9.]+)?$")]
"""``os/architecture[/variant]``."""
MOST = 100_000
"""No pool has more of anything: what is beyond is a mistake, told before arithmetic, database or pod choke on it."""
Count = Annotated[int, Field(strict=True, ge=1, le=MOST)]
WholeGpus = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Gibibytes = Annotated[int, Field(strict=True, ge=0, le=MOST)]
Quantity = Annotated[float, Field(strict=True, gt=0, le=MOST)]
Flag = Annotated[bool, Field(strict=True)]
Amount = Annotated[Decimal, BeforeValidator(notation.amount)]
Price = Annotated[Decimal, BeforeValidator(notation.price)]
Day = Annotated[datetime, BeforeValidator(notation.day)]
Share = Annotated[Decimal, BeforeValidator(notation.share)]
Duration = Annotated[timedelta, BeforeValidator(notation.duration)]
Lasting = Annotated[timedelta, BeforeValidator(notation.lasting)]
AnyText = Annotated[str, Field(strict=True)]
Words = dict[Text, AnyText]
Prices = Annotated[dict[Billing, Decimal], BeforeValidator(notation.prices)]
PriorityWord = Annotated[Priority, BeforeValidator(notation.choice(Priority, "priority"))]
TierWord = Annotated[Tier, BeforeValidator(notation.choice(Tier, "tier"))]
BillingWord = Annotated[Billing, BeforeValidator(notation.choice(Billing, "billing type"))]
SecondChoiceWord = Annotated[SecondChoice, BeforeValidator(notation.choice(SecondChoice, "second choice"))]
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


class RepositoryEntry(Entry):
    repository: Annotated[Text, AfterValidator(notation.repository)]
    tags: Annotated[tuple[TagPattern, ...], Field(min_length=1)] = ("*",)
    exclude: tuple[TagPattern, ...] = ()
    tier: TierWord = Tier.CORE
    sites: tuple[Label, ...] = ()
    platforms: tuple[Platform, ...] = ()
    signatures: Flag = True
    move_tags: Flag = False
    delete: Flag = False

    @property
    def name(self) -> str:
        return self.repository

    def mirrored(self) -> MirroredRepository:
        return MirroredRepository(**dict(self))


class ImagesFile(Entry):
    images: Annotated[tuple[RepositoryEntry, ...], Unique]


class HoursEntry(Entry):
    """Hours of every day by the clocks of a zone."""

    hours: Annotated[tuple[timedelta, timedelta], BeforeValidator(notation.hours)]
    time_zone: Annotated[str, BeforeValidator(notation.zone)]

    def off_peak(self, prices_per_hour: Mapping[Billing, Decimal] | None = None) -> OffPeak:
        begins, ends = self.hours
        return OffPeak(begins=begins, ends=ends, time_zone=self.time_zone, prices_per_hour=prices_per_hour or {})


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


def _clusters(written: Any) -> frozenset[str] | None:
    """``all`` is None: whatever is declared."""
    if written == "all":
        return None
    if not isinstance(written, list) or not all(isinstance(name, str) for name in written):
        raise notation.refused(f"expected 'all' or a list of clusters, got {written!r}")
    return frozenset(written)


class CloudAccessEntry(Entry):
    clusters: Annotated[frozenset[str] | None, BeforeValidator(_clusters)]
    billing: Annotated[frozenset[BillingWord], Field(min_length=1)]
    dags: tuple[Text, ...] = ()


class PlacementEntry(Entry):
    """Without ``cloud_access`` nobody may use the cloud."""

    weights: Annotated[dict[str, Decimal], BeforeValidator(_weights)]
    quotas: Annotated[dict[Text, QuotaEntry], AfterValidator(_shares_fit)]
    cloud_access: dict[Text, CloudAccessEntry] = {}
    borrowing: Flag = False
    price_max_age: Lasting | None = None
    second_choice: dict[PriorityWord, SecondChoiceWord] = {}
    preempt_after: Duration | None = None

    def policy(self) -> PlacementPolicy:
        quotas = {department: QuotaShare(**dict(quota)) for department, quota in self.quotas.items()}
        access = {department: CloudAccess(**dict(entry)) for department, entry in self.cloud_access.items()}
        second = {**SECOND_CHOICES, **self.second_choice}
        return PlacementPolicy(**dict(self) | {"quotas": quotas, "cloud_access": access, "second_choice": second})


class RunsEntry(Entry):
    """Every key may be left out; ``RunPolicy`` has the defaults."""

    cool_down: Duration | None = None
    lease: Lasting | None = None
    startup_limit: Lasting | None = None
    node_margin: Duration | None = None
    attempts_without_progress: Count | None = None
    stalls_without_progress: Count | None = None

    def policy(self) -> RunPolicy:
        return RunPolicy(**self.model_dump(exclude_none=True))


class RetentionEntry(Entry):
    """Every key may be left out; ``Retention`` has the defaults."""

    last: Count | None = None
    every_steps: Annotated[int, Field(strict=True, ge=0)] | None = None
    best: Annotated[int, Field(strict=True, ge=0, le=MOST)] | None = None
    metric: Text | None = None
    highest_is_best: Flag | None = None
    minimum_age: Duration | None = None

    def retention(self) -> Retention:
        return Retention(**self.model_dump(exclude_none=True))


class CheckpointsEntry(Entry):
    """Without ``retention`` nothing is ever deleted."""

    retention: RetentionEntry | None = None


class IterationEntry(Entry):
    """Every key may be left out; ``Iteration`` has the defaults."""

    days: Annotated[int | None, BeforeValidator(notation.last_days)] = Iteration().days
    time_zone: Annotated[str, BeforeValidator(notation.zone)] = Iteration().time_zone

    def iteration(self) -> Iteration:
        return Iteration(**dict(self))


class KeepEntry(Entry):
    """Every key may be left out; ``SampleRetention`` has the defaults."""

    samples: Lasting | None = None
    five_minutes: Lasting | None = None
    hours: Lasting | None = None


class SamplesEntry(Entry):
    keep: KeepEntry = KeepEntry()

    def retention(self) -> SampleRetention:
        return SampleRetention(**self.keep.model_dump(exclude_none=True))
