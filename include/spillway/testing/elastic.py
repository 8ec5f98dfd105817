"""Values of elasticity with safe defaults: a cloud pool of 8-GPU nodes, nodes that idle, jobs that wait, points."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from spillway.ledger import ScalingLook
from spillway.model import (
    Forecast,
    ManualOrder,
    OrderKind,
    PendingJob,
    PoolTarget,
    PoolUse,
    Priority,
    ScalableNode,
    ScaledBy,
    ScalingSnapshot,
    UsePoint,
)
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT
from spillway.scaling.rules import ScalingRules
from spillway.testing.builders import NOW, cloud_pool

POOL = ("cloud", "h100")
MINUTE = timedelta(minutes=1)
SAMPLED = timedelta(seconds=30)


def busy_node(name: str, **fields: Any) -> ScalableNode:
    """A node whose GPUs are all in use."""
    node = ScalableNode(
        name=name, created_at=NOW - timedelta(hours=5), gpus=8, free_gpus=0, pods=1, ready_at=NOW - timedelta(hours=5)
    )
    return replace(node, **fields)


def idle_node(name: str, idle: timedelta = timedelta(), **fields: Any) -> ScalableNode:
    """A node that has been idle for so long."""
    return busy_node(name, **{"free_gpus": 8, "pods": 0, "idle_since": NOW - idle} | fields)


def booting_node(name: str, age: timedelta = MINUTE, **fields: Any) -> ScalableNode:
    """A node that was created so long ago and is not Ready."""
    fresh = {"gpus": 0, "free_gpus": 0, "pods": 0, "ready_at": None, "created_at": NOW - age}
    return busy_node(name, **fresh | fields)


def pool_use(*nodes: ScalableNode, **fields: Any) -> PoolUse:
    """The pool ``h100`` of the cluster ``cloud``, 0 to 100 nodes; all that were asked for are there.

    ``min_nodes`` and ``max_nodes`` are those of the pool.
    """
    scaled_by = ScaledBy(provider="sandbox", min_nodes=fields.pop("min_nodes", 0))
    pool = replace(cloud_pool(), name=POOL[1], max_nodes=fields.pop("max_nodes", 100), scaled_by=scaled_by)
    return replace(PoolUse(cluster=POOL[0], pool=pool, wanted=len(nodes), nodes=nodes), **fields)


def pending_job(run: str = "r1", **fields: Any) -> PendingJob:
    """A job of one pod of 8 GPUs that has waited for a minute, for room in the pool."""
    job = PendingJob(
        run=run,
        gpus_per_node=8,
        nodes=1,
        since=NOW - MINUTE,
        priority=Priority.RESEARCH,
        places=frozenset({POOL}),
    )
    return replace(job, **fields)


def pending_jobs(count: int, **fields: Any) -> tuple[PendingJob, ...]:
    return tuple(pending_job(f"r{number:04}", **fields) for number in range(count))


def measured(
    used_gpus: int | Callable[[timedelta], int],
    gpus: int = 100,
    *,
    ago: timedelta = timedelta(hours=1),
    step: timedelta = SAMPLED,
) -> tuple[UsePoint, ...]:
    """A point every 30 seconds since so long ago; ``used_gpus`` may be of how long ago the point is."""
    ages = [ago - number * step for number in range(ago // step + 1)]
    return tuple(
        UsePoint(
            at=NOW - age,
            gpus=gpus,
            used_gpus=used_gpus(age) if callable(used_gpus) else used_gpus,
            queued_jobs=0,
            pending_gpus=0,
        )
        for age in ages
    )


def manual_order(**fields: Any) -> ManualOrder:
    """Two nodes more than none, ordered a minute ago for an hour."""
    order = ManualOrder(
        order="o1",
        kind=OrderKind.ADD,
        cluster=POOL[0],
        pool=POOL[1],
        nodes=2,
        base_nodes=0,
        ordered_at=NOW - MINUTE,
        ordered_by="ada",
        until=NOW + timedelta(hours=1),
        ready_by=NOW + 9 * MINUTE,
    )
    return replace(order, **fields)


def scaling_snapshot(*pools: PoolUse, **fields: Any) -> ScalingSnapshot:
    return replace(ScalingSnapshot(taken_at=NOW, pools=pools), **fields)


def scaling_look(
    seen: ScalingSnapshot | None = None,
    rules: ScalingRules = DEFAULT,
    forecasts: Mapping[tuple[str, str], Forecast] | None = None,
) -> ScalingLook:
    """What these rules plan from the snapshot; of no pool without one."""
    known, foreseen = seen or scaling_snapshot(), forecasts or {}
    return ScalingLook(snapshot=known, forecasts=foreseen, rules=rules, plan=plan_scaling(known, foreseen, rules))


def carried_out(seen: ScalingSnapshot, plan: Iterable[PoolTarget]) -> ScalingSnapshot:
    """The snapshot once every provider was asked: what left is gone, what was ordered is not there yet."""
    targets = {(target.cluster, target.pool): target for target in plan}
    pools, last_out, last_in = [], dict(seen.last_out), dict(seen.last_in)
    for use in seen.pools:
        key = (use.cluster, use.pool.name)
        target = targets[key]
        nodes = tuple(node for node in use.nodes if node.name not in target.remove)
        pools.append(replace(use, nodes=nodes, wanted=target.nodes))
        if target.nodes > use.wanted:
            last_out[key] = seen.taken_at
        if target.nodes < use.wanted:
            last_in[key] = seen.taken_at
    replaced = dict(seen.replaced)
    for key, target in targets.items():
        if target.replaces:
            replaced[key] = {**replaced.get(key, {}), seen.taken_at: frozenset(target.replaces)}
    return replace(seen, pools=tuple(pools), last_out=last_out, last_in=last_in, replaced=replaced)
