"""GPUs, what they do and who waits for them; each figure says how old it is, and one that is old says why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.model import Cluster, DeviceUse, JobDemand, JobUse, NodeSample, PodStart, PoolSample, Priority, Sample

CURRENT = timedelta(seconds=90)
"""A sample is taken every half minute; what is older is no longer how it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """The jobs that were asked about: those of a department, of a priority and of a business scene; None is any."""

    department: str | None = None
    priority: Priority | None = None
    business_scene: str | None = None

    def has(self, job: JobUse | JobDemand) -> bool:
        return (
            self.department in {None, job.department}
            and self.priority in {None, job.priority}
            and self.business_scene in {None, job.business_scene}
        )


ANYBODYS = Whose()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleNode:
    """A node without a pod, and for how long it had none when it was seen."""

    name: str
    idle: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """One declared pool as it was ``measured_at``; None where it never was, and then nothing else is known of it.

    ``stale``: it was too long ago to be how it is now, for the reason in ``cause``. ``used_gpus``, ``queued_runs`` and
    ``pending_gpus`` are of the jobs that were asked about; the queue is None where nobody knows it now. ``free_gpus``
    are those that no pod holds, whoever's.
    ``start_latency`` are the median and the 95th percentile of the pods that began here in the last day.
    """

    cluster: str
    pool: str
    measured_at: datetime | None = None
    age: timedelta | None = None
    stale: bool = True
    cause: str = ""
    gpus: float | None = None
    used_gpus: float | None = None
    free_gpus: float | None = None
    device: DeviceUse | None = None
    queued_runs: float | None = None
    pending_gpus: float | None = None
    nodes: float | None = None
    idle_nodes: tuple[IdleNode, ...] = ()
    start_latency: tuple[timedelta, timedelta] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandFigures:
    """All of it at ``asked_at``. ``sampled_at`` is when anything was sampled last, and the age of the queue.

    ``stale``: some part of it is. ``queue`` are the jobs that wait, the largest first; None where nobody knows it now.
    ``business_scenes`` are those of all jobs that hold GPUs or wait, whoever was asked about.
    """

    asked_at: datetime
    sampled_at: datetime | None
    stale: bool
    whose: Whose
    pools: tuple[PoolFigures, ...]
    queue: tuple[JobDemand, ...] | None
    business_scenes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the ledger has: the newest sample of all, that of each pool, nodes as they were last, and recent starts."""

    newest: Sample | None
    pools: Sequence[tuple[datetime, PoolSample]]
    nodes: Sequence[NodeSample]
    starts: Sequence[PodStart]


def demand_figures(now: datetime, declared: Iterable[Cluster], known: Known, whose: Whose = ANYBODYS) -> DemandFigures:
    """The figures of every pool that is declared, as far as they are known."""
    newest = known.newest
    last = {(pool.cluster, pool.pool): (at, pool) for at, pool in known.pools}
    queue = None
    if newest is not None and now - newest.at <= CURRENT:
        asked = [demand for demand in newest.queue if whose.has(demand)]
        queue = tuple(sorted(asked, key=lambda demand: (-demand.gpus, str(demand.job), sorted(demand.places))))
    pools = tuple(
        _pool(now, (cluster.name, pool.name), last.get((cluster.name, pool.name)), known, queue, whose)
        for cluster in declared
        for pool in cluster.pools
    )
    return DemandFigures(
        asked_at=now,
        sampled_at=None if newest is None else newest.at,
        stale=queue is None or any(pool.stale for pool in pools),
        whose=whose,
        pools=pools,
        queue=queue,
        business_scenes=tuple(sorted(_scenes(known))),
    )


def _scenes(known: Known) -> set[str]:
    scenes = {use.business_scene for _, pool in known.pools for use in pool.jobs}
    scenes |= {demand.business_scene for demand in known.newest.queue} if known.newest else set()
    return {scene for scene in scenes if scene is not None}


def _pool(
    now: datetime,
    name: tuple[str, str],
    last: tuple[datetime, PoolSample] | None,
    known: Known,
    queue: Iterable[JobDemand] | None,
    whose: Whose,
) -> PoolFigures:
    cluster, pool = name
    if last is None:
        return PoolFigures(cluster=cluster, pool=pool, cause=_cause(cluster, known.newest, now) or "never measured")
    at, sample = last
    stale = now - at > CURRENT
    here = None if stale or queue is None else [demand for demand in queue if name in demand.places]
    idle = [n for n in known.nodes if (n.cluster, n.pool) == name and n.idle_since is not None]
    return PoolFigures(
        cluster=cluster,
        pool=pool,
        measured_at=at,
        age=now - at,
        stale=stale,
        cause=(_cause(cluster, known.newest, now) or "the pool is no longer there") if stale else "",
        gpus=sample.gpus,
        used_gpus=sample.used_gpus if whose == ANYBODYS else sum(use.gpus for use in sample.jobs if whose.has(use)),
        free_gpus=max(0.0, sample.gpus - sample.used_gpus),
        device=sample.device,
        queued_runs=None if here is None else sum(demand.runs for demand in here),
        pending_gpus=None if here is None else sum(demand.gpus for demand in here),
        nodes=sample.nodes,
        idle_nodes=tuple(
            IdleNode(name=node.name, idle=node.seen_at - node.idle_since)
            for node in sorted(idle, key=lambda node: (node.idle_since, node.name))
            if node.idle_since is not None
        ),
        start_latency=latency([s.latency for s in known.starts if (s.cluster, s.pool) == name]),
    )


def _cause(cluster: str, newest: Sample | None, now: datetime) -> str:
    """Why nothing new is known of the cluster; empty where it is."""
    if newest is None or now - newest.at > CURRENT:
        return "nobody takes samples: is `python -m spillway sample` running?"
    return newest.unknown.get(cluster, "")


def latency(known: Sequence[timedelta]) -> tuple[timedelta, timedelta] | None:
    """The median and the 95th percentile, each one of those that are known; None where none is."""
    ordered = sorted(known)
    if not ordered:
        return None
    return tuple(ordered[math.ceil(len(ordered) * part) - 1] for part in (0.5, 0.95))  # type: ignore[return-value]
