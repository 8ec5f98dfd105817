"""What clusters and queue were like at one moment, and on average over a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spillway.model.declared import Priority

SAMPLE_STEP = timedelta(seconds=30)
ROLL_UPS = (timedelta(minutes=5), timedelta(hours=1))
"""What samples are averaged over, each from the one before; all begin with the hour, by UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What the devices of a pool's GPUs told, the mean of those that did; ``gpus`` is how many did.

    ``utilisation`` and ``memory`` are in [0, 1]. ``power_watts`` is of one GPU, ``temperature_celsius`` of the hottest.
    None is what none of them told.
    """

    gpus: float
    utilisation: float | None = None
    memory: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """GPUs that pods of one job hold; ``job``, ``department`` and ``priority`` are None where they are not ours."""

    job: str | None
    department: str | None
    gpus: float
    priority: Priority | None = None
    business_scene: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDemand:
    """GPUs that runs of one job wait for, and at which (cluster, pool) pairs: each of them would do.

    They have no room yet, or have it and their pods are on no node yet. Pods that are not ours have no ``job``. What
    backfills wait for without having nodes ordered for it is left out.
    """

    job: str | None
    department: str | None
    places: frozenset[tuple[str, str]]
    runs: float
    gpus: float
    priority: Priority | None = None
    business_scene: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSample:
    """One pool; of a roll-up everything is the mean of the ``taken`` samples in which its cluster could be read.

    ``gpus`` are those that pods may use or do use, ``used_gpus`` what pods hold, whoever owns them. ``nodes`` are Ready
    ones, ``idle_nodes`` those without any pod. ``device`` is None where the devices told nothing, and is the mean of
    ``measured`` samples.
    """

    cluster: str
    pool: str
    gpus: float
    used_gpus: float
    nodes: float
    idle_nodes: float
    jobs: tuple[JobUse, ...] = ()
    device: DeviceUse | None = None
    measured: int = 0
    taken: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was measured at one moment, or on average of ``taken`` moments of a ``step`` that begins ``at``.

    A cluster that could not be read is in ``unknown`` with its cause, and has no pool here. What was not measured at
    all has no sample: a gap is never a zero.
    """

    at: datetime
    pools: tuple[PoolSample, ...]
    queue: tuple[JobDemand, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    step: timedelta = SAMPLE_STEP
    taken: int = 1

    @property
    def coverage(self) -> float:
        """The part of the step that was measured, in [0, 1]."""
        return self.taken * SAMPLE_STEP / self.step

    @property
    def queued_runs(self) -> float:
        return sum(demand.runs for demand in self.queue)

    @property
    def pending_gpus(self) -> float:
        return sum(demand.gpus for demand in self.queue)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSample:
    """A node as it was ``seen_at``, the last time that its cluster could be read.

    ``idle_since`` is since when it has been seen again and again without a pod; None where it has one. ``created_at``
    and ``ready_at`` are None where its API does not say, or it is not Ready.
    """

    cluster: str
    pool: str
    name: str
    seen_at: datetime
    gpus: float
    used_gpus: float
    created_at: datetime | None = None
    ready_at: datetime | None = None
    idle_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStart:
    """A pod with GPUs that began to run; both moments are of its cluster's clock. ``pod`` is ``namespace/name``."""

    cluster: str
    pool: str
    pod: str
    created_at: datetime
    started_at: datetime

    @property
    def latency(self) -> timedelta:
        return self.started_at - self.created_at


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRetention:
    """How long samples are kept, and their averages over five minutes and over an hour."""

    samples: timedelta = timedelta(days=2)
    five_minutes: timedelta = timedelta(days=30)
    hours: timedelta = timedelta(days=396)
