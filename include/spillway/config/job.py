"""What a job file may hold."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationInfo, model_validator

from spillway.config import notation
from spillway.config.schema import (
    AnyText,
    Count,
    Duration,
    Entry,
    Flag,
    Gibibytes,
    Label,
    Lasting,
    Price,
    PriorityWord,
    Quantity,
    Text,
    TierWord,
    Unique,
    VariableName,
    WholeGpus,
)
from spillway.model import DatasetUse, JobSpec, StallRule, Tier

T = TypeVar("T")


def _not_shorter(longest: timedelta, job: ValidationInfo) -> timedelta:
    expected = job.data.get("expected_duration")
    if expected is not None and longest < expected:
        raise notation.refused(
            f"is the longest that the job trains, got {longest}, which is shorter than expected_duration, {expected}"
        )
    return longest


class StallEntry(Entry):
    """Every key may be left out; ``StallRule`` has the defaults."""

    after: Annotated[timedelta, BeforeValidator(notation.silence)] | None = None
    steps: Count | None = None

    def rule(self) -> StallRule:
        return StallRule(**self.model_dump(exclude_none=True))


def _long_enough(within: timedelta, job: ValidationInfo) -> timedelta:
    longest = job.data.get("longest_duration") or job.data.get("expected_duration")
    if longest is None:
        raise notation.refused("needs expected_duration beside it: nobody can tell when it has to begin otherwise")
    if within < longest:
        raise notation.refused(f"is how long the job may take in all, got {within}, but it trains for {longest}")
    return within


def _of_gpus(said: T, job: ValidationInfo) -> T:
    if said and job.data.get("gpus_per_node") == 0:
        raise notation.refused("is about GPUs, and the job takes none (gpus_per_node: 0); leave it out")
    return said


def _of_one_gpu(fraction: Decimal, job: ValidationInfo) -> Decimal:
    gpus, nodes = job.data.get("gpus_per_node", 1), job.data.get("nodes", 1)
    if gpus * nodes != 1:
        raise notation.refused(f"is a part of one GPU, but the job has {nodes} x {gpus}; leave one of the two out")
    return fraction


def _public(written: Any) -> Tier:
    if written != Tier.PUBLIC:
        raise notation.refused(
            f"expected 'public', got '{written}': a job that may read core objects reads all; leave it out"
        )
    return Tier.PUBLIC


def _of_a_dataset(part: Tier, job: ValidationInfo) -> Tier:
    if job.data.get("dataset") is None:
        raise notation.refused("is of a dataset, and the job names none; name it as `dataset`, or leave this out")
    return part


def _by_name(written: Any) -> Any:
    return {"name": written} if isinstance(written, str) else written


class DatasetUseEntry(Entry):
    """The name of a dataset alone, or with the part of it that is read."""

    name: Text
    part: Annotated[Tier, BeforeValidator(_public)] | None = None


def _beside_none(datasets: tuple[DatasetUseEntry, ...], job: ValidationInfo) -> tuple[DatasetUseEntry, ...]:
    if job.data.get("dataset") is not None:
        raise notation.refused("stands beside `dataset`, which names the only one; name all of them here")
    return datasets


class JobFile(Entry):
    name: Label
    department: Text
    priority: PriorityWord
    image: Annotated[Text, AfterValidator(notation.image)]
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    gpus_per_node: WholeGpus
    nodes: Count = 1
    gpu_model: Annotated[Text, AfterValidator(_of_gpus)] | None = None
    gpu_memory_gib: Annotated[Gibibytes, AfterValidator(_of_gpus)] = 0
    gpu_fraction: Annotated[Decimal, BeforeValidator(notation.fraction), AfterValidator(_of_one_gpu)] | None = None
    cpu_cores: Quantity = 1.0
    memory_gib: Quantity = 1.0
    dataset: Text | None = None
    part: Annotated[Tier, BeforeValidator(_public), AfterValidator(_of_a_dataset)] | None = None
    datasets: Annotated[
        tuple[Annotated[DatasetUseEntry, BeforeValidator(_by_name)], ...],
        Field(min_length=1),
        Unique,
        AfterValidator(_beside_none),
    ] = ()
    tier: TierWord | None = None
    image_tier: TierWord | None = None
    latency_sensitive: Flag = False
    spot_ok: Flag = False
    off_peak_ok: Flag = False
    backfill_orders_nodes: Flag = False
    business_scene: Text | None = None
    expected_duration: Lasting | None = None
    longest_duration: Annotated[Lasting, AfterValidator(_not_shorter)] | None = None
    finish_within: Annotated[Lasting, AfterValidator(_long_enough)] | None = None
    checkpoint_interval: Lasting | None = None
    checkpoint_gib: Quantity | None = None
    max_price_per_gpu_hour: Annotated[Price, AfterValidator(_of_gpus)] | None = None
    grace: Duration = timedelta(seconds=30)
    stall: StallEntry | None = StallEntry()
    environment: dict[VariableName, AnyText] = Field(default_factory=dict)
    pod_overrides: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _a_part_is_of_one_gpu(cls, data: Any) -> Any:
        part = isinstance(data, Mapping) and data.get("gpu_fraction") is not None
        return {"gpus_per_node": 1, **data} if part else data

    @property
    def uses(self) -> tuple[DatasetUse, ...]:
        """What it reads, in the order of the file."""
        if self.dataset is not None:
            return (DatasetUse(name=self.dataset, part=self.part),)
        return tuple(DatasetUse(**dict(entry)) for entry in self.datasets)

    def job(self, tier: Tier) -> JobSpec:
        """The job, whose data is of that tier."""
        same = {key: value for key, value in self if key not in {"dataset", "part"}}
        return JobSpec(**same | {"datasets": self.uses, "tier": tier, "stall": self.stall and self.stall.rule()})
