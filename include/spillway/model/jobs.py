"""A training job as people declare it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from spillway.model.datasets import DatasetUse
from spillway.model.declared import Priority, Tier
from spillway.model.pools import gpus_in_all, shape_in_words


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRule:
    """How long a trainer that has trained may say nothing: ``after`` and ``steps`` of its usual steps, both."""

    after: timedelta = timedelta(minutes=15)
    steps: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job as its user declares it. GPUs, CPU cores and memory are per node; ``nodes`` run as one gang.

    ``gpu_fraction`` is the part of one GPU that it takes, in thousandths; ``gpus_per_node`` and ``nodes`` are 1 then.
    ``gpus_per_node`` is 0 for work without GPUs, which pays for cores.
    ``business_scene`` is what its cost is told by beside the department. ``expected_duration`` is how long it is
    thought to train, ``longest_duration`` what it hardly ever exceeds, ``finish_within`` by when after it was asked for
    it has to be done. ``checkpoint_interval`` and ``checkpoint_gib`` are what its program does, which a move is
    estimated by until the run has shown it. What is None nobody has said: it is never zero.
    ``stall`` is None where the job is never taken for stalled. ``backfill_orders_nodes``: whether nodes are ordered for
    it, too, where a backfill asks for it.
    """

    name: str
    department: str
    priority: Priority
    image: str
    command: tuple[str, ...]
    gpus_per_node: int
    nodes: int = 1
    gpu_model: str | None = None
    gpu_memory_gib: int = 0
    gpu_fraction: Decimal | None = None
    cpu_cores: float = 1.0
    memory_gib: float = 1.0
    datasets: tuple[DatasetUse, ...] = ()
    tier: Tier = Tier.CORE
    image_tier: Tier | None = None
    latency_sensitive: bool = False
    spot_ok: bool = False
    off_peak_ok: bool = False
    backfill_orders_nodes: bool = False
    business_scene: str | None = None
    expected_duration: timedelta | None = None
    longest_duration: timedelta | None = None
    finish_within: timedelta | None = None
    checkpoint_interval: timedelta | None = None
    checkpoint_gib: float | None = None
    max_price_per_gpu_hour: Decimal | None = None
    grace: timedelta = timedelta(seconds=30)
    stall: StallRule | None = StallRule()
    environment: Mapping[str, str] = field(default_factory=dict)
    pod_overrides: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_older(data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Its plain data as it is written now: a job had one ``dataset`` by its name, or None."""
        if "dataset" not in data:
            return data
        name = data["dataset"]
        uses = [] if name is None else [{"name": name}]
        return {**{key: value for key, value in data.items() if key != "dataset"}, "datasets": uses}

    @property
    def gpus(self) -> Decimal:
        """How many it takes in all, to the exact part of one: what quotas and bookings count."""
        return gpus_in_all(self.gpus_per_node, self.nodes, self.gpu_fraction)

    @property
    def cores_paid(self) -> Decimal:
        """The cores that it is billed for: all of them where it takes no GPU, else none."""
        return Decimal(0) if self.gpus_per_node else Decimal(self.cpu_millicores * self.nodes) / 1000

    @property
    def priced_units(self) -> Decimal:
        """What the price of an hour is of: its GPUs, or its cores where it takes no GPU."""
        return self.gpus or self.cores_paid

    @property
    def shape_in_words(self) -> str:
        """What it asks for, for people."""
        return shape_in_words(self.gpus_per_node, self.nodes, self.gpu_fraction, self.cpu_millicores)

    @property
    def longest(self) -> timedelta | None:
        """How long it trains at most, as far as anybody has said."""
        return self.longest_duration or self.expected_duration

    @property
    def cpu_millicores(self) -> int:
        """What each pod asks of its node, rounded up."""
        return math.ceil(self.cpu_cores * 1000)

    @property
    def memory_mib(self) -> int:
        """What each pod asks of its node, rounded up."""
        return math.ceil(self.memory_gib * 1024)

    @property
    def reads_a_part(self) -> bool:
        """Whether it is public because it leaves the core objects of a dataset out: its pods must not read these."""
        return self.tier is Tier.PUBLIC and any(use.part is not None for use in self.datasets)

    @property
    def image_made_of(self) -> Tier:
        """The tier of what its image was made of: its data's, unless the job file says that of the image itself."""
        return self.image_tier or self.tier
