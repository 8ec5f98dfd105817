"""The averages of samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

from spillway.model import DeviceUse, JobDemand, JobUse, PoolSample, Sample

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def step_start(moment: datetime, step: timedelta) -> datetime:
    """The begin of the step that the moment is in: the same for everybody, whatever zone it is written in."""
    return _EPOCH + (moment - _EPOCH) // step * step


def average(samples: Sequence[Sample], at: datetime, step: timedelta) -> Sample:
    """The mean of samples that all lie in the step which begins ``at``; there is at least one.

    A run that waited for half of them counts half. What a pool's mean is of are the samples that have the pool.
    """
    taken = sum(sample.taken for sample in samples)
    pools: dict[tuple[str, str], list[PoolSample]] = defaultdict(list)
    for sample in samples:
        for pool in sample.pools:
            pools[pool.cluster, pool.pool].append(pool)
    return Sample(
        at=at,
        step=step,
        taken=taken,
        pools=tuple(_pool(pools[name]) for name in sorted(pools)),
        queue=merged_demand(((demand, sample.taken) for sample in samples for demand in sample.queue), taken),
        unknown={name: cause for sample in samples for name, cause in sample.unknown.items()},
    )


def merged_demand(demands: Iterable[tuple[JobDemand, int]], taken: int = 1) -> tuple[JobDemand, ...]:
    """What all ask for, those alike as one; each counts as so many of ``taken`` samples.

    A job that does not wait in a sample waits there for nothing: the queue is known wherever there is a sample.
    """
    runs: dict[JobDemand, float] = defaultdict(float)
    gpus: dict[JobDemand, float] = defaultdict(float)
    for demand, weight in demands:
        who = replace(demand, runs=0, gpus=0)
        runs[who] += demand.runs * weight
        gpus[who] += demand.gpus * weight
    return tuple(
        replace(who, runs=runs[who] / taken, gpus=gpus[who] / taken)
        for who in sorted(runs, key=lambda who: (*_order(who), sorted(who.places)))
    )


def merged_use(uses: Iterable[tuple[JobUse, int]], taken: int = 1) -> tuple[JobUse, ...]:
    """What all hold, those of one job as one; each counts as so many of ``taken`` samples."""
    gpus: dict[JobUse, float] = defaultdict(float)
    for use, weight in uses:
        gpus[replace(use, gpus=0)] += use.gpus * weight
    return tuple(replace(who, gpus=gpus[who] / taken) for who in sorted(gpus, key=_order))


def _order(who: JobUse | JobDemand) -> tuple[str, ...]:
    return str(who.job), str(who.department), str(who.priority), str(who.business_scene)


def _pool(samples: Sequence[PoolSample]) -> PoolSample:
    taken, measured = sum(sample.taken for sample in samples), sum(sample.measured for sample in samples)

    def mean(figure: Callable[[PoolSample], float]) -> float:
        return sum(figure(sample) * sample.taken for sample in samples) / taken

    return replace(
        samples[0],
        taken=taken,
        gpus=mean(lambda sample: sample.gpus),
        used_gpus=mean(lambda sample: sample.used_gpus),
        nodes=mean(lambda sample: sample.nodes),
        idle_nodes=mean(lambda sample: sample.idle_nodes),
        jobs=merged_use(((use, sample.taken) for sample in samples for use in sample.jobs), taken),
        device=device_use([(s.device, s.measured) for s in samples if s.device is not None], measured),
        measured=measured,
    )


def device_use(told: Sequence[tuple[DeviceUse, int]], moments: int = 1) -> DeviceUse | None:
    """What all told together: each figure's mean of those that told it, by their GPUs; the hottest stays the hottest.

    Args:
        told: with how many samples each is of; ``moments`` is in how many of them there was any.
    """
    if not told:
        return None
    found: dict[str, float | None] = {}
    for name in (field.name for field in fields(DeviceUse) if field.name != "gpus"):
        known = [(getattr(use, name), use.gpus * weight) for use, weight in told if getattr(use, name) is not None]
        whole = sum(weight for _, weight in known)
        found[name] = sum(figure * weight for figure, weight in known) / whole if whole else None
    hottest = [use.temperature_celsius for use, _ in told if use.temperature_celsius is not None]
    found["temperature_celsius"] = max(hottest, default=None)
    return DeviceUse(gpus=sum(use.gpus * weight for use, weight in told) / moments, **found)


def covers(demand: JobDemand, clusters: Iterable[str]) -> bool:
    """Whether any of the clusters would do for it."""
    wanted = frozenset(clusters)
    return any(cluster in wanted for cluster, _ in demand.places)
