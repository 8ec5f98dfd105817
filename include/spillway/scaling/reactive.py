"""What each reactive rule wants of what was measured and of what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from math import ceil

from spillway.errors.counts import counted
from spillway.model import ScalingSnapshot
from spillway.scaling.demand import Demand
from spillway.scaling.held import above, below, from_on, has_held, up_to
from spillway.scaling.rules import QueueRule, ScalingRules, StepRule, UtilisationRule
from spillway.scaling.sizes import PoolSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """How many nodes more each pool is to have, and why; and which idle ones may leave.

    ``release_after``: those that are idle for so long; None: none. ``spare_gpus``: so many GPUs of all pools may
    leave, None for any. ``release_reason`` is why.
    """

    grow: Mapping[tuple[str, str], int] = field(default_factory=dict)
    grow_reason: str = ""
    release_after: timedelta | None = None
    spare_gpus: int | None = None
    release_reason: str = ""


NOTHING = Reaction()


def react(
    snapshot: ScalingSnapshot,
    sizes: Sequence[PoolSize],
    demand: Demand,
    room: Mapping[tuple[str, str], int],
    rules: ScalingRules,
) -> Reaction:
    """What the reactive rule wants; of what nobody measured it wants nothing.

    Args:
        sizes: the pools, the preferred one first.
        room: how many more nodes each pool may have.
    """
    match rules.reactive:
        case UtilisationRule() as rule:
            return _by_utilisation(rule, snapshot, sizes, demand, room, rules.largest_gap)
        case StepRule() as rule:
            return _in_steps(rule, snapshot, sizes, demand, room, rules.largest_gap)
        case QueueRule():
            return _for_the_queue(demand)


def gpus_to_add(utilisation: Fraction, target: Fraction, gpus: int) -> int:
    """How many GPUs beside ``gpus`` bring the utilisation to the target: ``ceil((utilisation / target - 1) * gpus)``.

    In exact arithmetic: 0.77 / 0.70 of 10 GPUs is 1 more, where floating point says 2.
    """
    return ceil((utilisation / target - 1) * gpus)


def favoured(sizes: Sequence[PoolSize], demand: Demand, room: Mapping[tuple[str, str], int]) -> list[PoolSize]:
    """The pools that may have more nodes, that one first for which most GPUs wait."""
    able = [size for size in sizes if room[size.key] > 0 and size.gpus_per_node]
    return sorted(able, key=lambda size: -demand.pools[size.key].gpus)


def _by_utilisation(
    rule: UtilisationRule,
    snapshot: ScalingSnapshot,
    sizes: Sequence[PoolSize],
    demand: Demand,
    room: Mapping[tuple[str, str], int],
    largest_gap: timedelta,
) -> Reaction:
    """Of a pool without any node nothing is measured: it begins with the nodes for what waits for it.

    While a pool is unknown nobody knows what comes to the cloud as a whole, and its utilisation says nothing.
    """
    points, now = () if snapshot.unknown else snapshot.cloud, snapshot.taken_at
    if has_held(above(rule.out_above), points, now, lasting=rule.out_after, largest_gap=largest_gap):
        point = points[-1]
        wanted = point.gpus + gpus_to_add(Fraction(point.used_gpus, point.gpus), rule.target, point.gpus)
        usable = sum((size.busy + len(size.idle)) * size.gpus_per_node for size in sizes)
        coming = sum(size.coming * size.gpus_per_node for size in sizes)
        lacking = wanted - max(usable, point.gpus) - coming
        grow = _spread(lacking, favoured(sizes, demand, room), room)
        if grow:
            reason = (
                f"cloud GPUs above {_percent(rule.out_above)} for {told(rule.out_after)}: {point.used_gpus} of "
                f"{point.gpus} in use, {_percent(rule.target)} is the target, so {lacking} more"
            )
            return Reaction(grow=grow, grow_reason=reason)
        return NOTHING
    empty = {size.key: demand.pools[size.key].new_nodes for size in sizes if not size.nodes}
    if any(empty.values()):
        return Reaction(grow=empty, grow_reason="it has no nodes and jobs wait for some")
    if has_held(below(rule.in_below), points, now, lasting=rule.in_after, largest_gap=largest_gap):
        point = points[-1]
        reason = f"cloud GPUs below {_percent(rule.in_below)} for {told(rule.in_after)}"
        spare = -gpus_to_add(Fraction(point.used_gpus, point.gpus), rule.target, point.gpus)
        return Reaction(release_after=timedelta(), spare_gpus=spare, release_reason=reason)
    return NOTHING


def _spread(gpus: int, pools: Sequence[PoolSize], room: Mapping[tuple[str, str], int]) -> Mapping[tuple[str, str], int]:
    """Nodes for so many GPUs, as many of each pool as it may have, by the order of the pools."""
    grow = {}
    for size in pools:
        if gpus <= 0:
            break
        grow[size.key] = min(room[size.key], -(-gpus // size.gpus_per_node))
        gpus -= grow[size.key] * size.gpus_per_node
    return grow


def _in_steps(
    rule: StepRule,
    snapshot: ScalingSnapshot,
    sizes: Sequence[PoolSize],
    demand: Demand,
    room: Mapping[tuple[str, str], int],
    largest_gap: timedelta,
) -> Reaction:
    points, now = snapshot.local, snapshot.taken_at
    pool = next(iter(favoured(sizes, demand, room)), None)
    lacking = 0 if pool is None else demand.pools[pool.key].gpus
    if pool is not None and lacking:
        enough = demand.waiting >= rule.queue or lacking >= rule.least * pool.gpus_per_node
        if enough and has_held(from_on(rule.out_from), points, now, lasting=rule.out_after, largest_gap=largest_gap):
            step = min(max(-(-lacking // pool.gpus_per_node), rule.least), rule.most)
            reason = (
                f"on-premises at {_percent(rule.out_from)} or above for {told(rule.out_after)}, "
                f"{counted(demand.waiting, 'job')} waiting, no room for {counted(lacking, 'GPU')}: a step of {step}"
            )
            return Reaction(grow={pool.key: step}, grow_reason=reason)
    if has_held(up_to(rule.in_to), points, now, lasting=rule.in_after, largest_gap=largest_gap):
        reason = (
            f"on-premises at {_percent(rule.in_to)} or below for {told(rule.in_after)}, idle for {told(rule.in_idle)}"
        )
        return Reaction(release_after=rule.in_idle, release_reason=reason)
    return NOTHING


def _for_the_queue(demand: Demand) -> Reaction:
    grow = {key: pool.new_nodes for key, pool in demand.pools.items() if pool.new_nodes}
    return Reaction(grow=grow, grow_reason="for jobs that wait and find no room") if grow else NOTHING


def _percent(share: Fraction) -> str:
    return f"{float(share * 100):g} %"


def told(lasting: timedelta) -> str:
    """How long, for people."""
    seconds = int(lasting.total_seconds())
    if seconds % 3600 == 0 and seconds:
        return f"{seconds // 3600} h"
    return f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"
