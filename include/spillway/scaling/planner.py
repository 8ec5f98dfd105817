"""The one plan for all pools.

Who wins, the later over the earlier:

1. the reactive rule, and the forecast: the higher of both;
2. release hours: idle nodes leave whatever the forecast says, those that a waiting job is about to take stay;
3. the least that a pool is to have, the nodes of a window, a person's order of more: the highest of all;
4. a forced shrink;
5. what the pool may have at most, and what the budget leaves;
6. pods: a node with one stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spillway.model import Forecast, ManualOrder, OrderKind, PoolTarget, ScalingSnapshot
from spillway.scaling.ahead import foreseen
from spillway.scaling.demand import demand_of
from spillway.scaling.leaving import leave, leave_by_force
from spillway.scaling.money import Purse, node_hour
from spillway.scaling.orders import standing
from spillway.scaling.reactive import react
from spillway.scaling.rules import ScalingRules
from spillway.scaling.sizes import NO_LIMITS, PoolSize, size_of
from spillway.scaling.wishes import Case, Spare, Wishes, wishes_of

Orders = Mapping[tuple[str, str], Sequence[ManualOrder]]


def plan_scaling(
    snapshot: ScalingSnapshot, forecasts: Mapping[tuple[str, str], Forecast], rules: ScalingRules
) -> tuple[PoolTarget, ...]:
    """How many nodes each pool is to have, by cluster and name: every pool of the snapshot, changed or not.

    A pool that is unknown keeps its size, and its target says so; one of which not even the size is known has none.

    Args:
        forecasts: of GPUs wanted, of ``ahead.EVERYWHERE`` or of what one (cluster, pool) is asked for.
    """
    now = snapshot.taken_at
    sizes = _known(snapshot, rules)
    orders: Orders = standing(snapshot.orders, now) if snapshot.orders else {}
    purse = Purse(snapshot.money_left, sizes)
    room = {size.key: _room(size, orders.get(size.key, ()), purse) for size in sizes}
    demand = demand_of(snapshot.queue, sizes, room, now)
    reaction = react(snapshot, sizes, demand, room, rules)
    ahead = foreseen(snapshot, forecasts, sizes, rules)
    spare = Spare(reaction.spare_gpus)
    wishes = {}
    for size in reversed(sizes):
        case = Case(
            size=size,
            demand=demand.pools[size.key],
            snapshot=snapshot,
            rules=rules,
            reaction=reaction,
            favoured=size is sizes[0],
        )
        wishes[size.key] = wishes_of(case, spare, ahead.get(size.key), orders.get(size.key, ()))
    targets = [_target(size, wishes[size.key], orders.get(size.key, ()), purse) for size in sizes]
    if snapshot.unknown:
        targets += _kept(snapshot)
    return tuple(targets) if len(targets) == 1 else tuple(sorted(targets, key=lambda one: (one.cluster, one.pool)))


def _known(snapshot: ScalingSnapshot, rules: ScalingRules) -> list[PoolSize]:
    """The pools that are known, those first whose GPUs cost least; those without a price last."""
    sizes = []
    for use in snapshot.pools:
        key = (use.cluster, use.pool.name)
        if key not in snapshot.unknown:
            limits = rules.limits.get(key, NO_LIMITS)
            sizes.append(size_of(use, snapshot.taken_at, limits=limits, replaced=snapshot.replaced))
    return sizes if len(sizes) < 2 else sorted(sizes, key=_dearness)


def _dearness(size: PoolSize) -> tuple[bool, object, tuple[str, str]]:
    price = node_hour(size.use.pool)
    return price is None, 0 if price is None else price / max(1, size.gpus_per_node), size.key


def _kept(snapshot: ScalingSnapshot) -> list[PoolTarget]:
    """The targets of pools that are unknown, and were once known well enough to have a size."""
    found = []
    for use in snapshot.pools:
        cause = snapshot.unknown.get((use.cluster, use.pool.name))
        if cause is not None:
            said = f"not known, so it keeps its size: {cause}"
            found.append(PoolTarget(cluster=use.cluster, pool=use.pool.name, nodes=use.wanted, clamps=(said,)))
    return found


def _room(size: PoolSize, orders: Sequence[ManualOrder], purse: Purse) -> int:
    """How many more nodes the pool may have."""
    most = min([size.most, *(order.nodes for order in orders if order.kind is OrderKind.SHRINK)])
    affordable, room = purse.affords(size), most - size.nodes
    return max(0, room if affordable is None else min(room, affordable))


def _target(size: PoolSize, wishes: Wishes, orders: Sequence[ManualOrder], purse: Purse) -> PoolTarget:
    """What the wishes come to, within what the pool may have, what the budget bears, and what pods allow."""
    wanted, clamps = wishes.nodes(size.limits.least), list[str]()
    if wanted > size.most:
        clamps.append(f"{wanted} nodes wanted, it may have {size.most}")
        wanted = size.most
    more = wanted - size.nodes
    affordable = purse.affords(size) if more > 0 else None
    if affordable is not None and more > affordable:
        clamps.append(f"{more} more nodes wanted, the budget bears {affordable}")
        more = affordable
        wanted = size.nodes + more
    if more > 0:
        purse.spend(size, more)
    nodes, victims = wanted, tuple[str, ...]()
    if more < 0:
        shrinks = [order for order in orders if order.kind is OrderKind.SHRINK]
        if shrinks or size.nodes > size.most:
            named = {name for order in shrinks for name in order.remove}
            nodes, victims = leave_by_force(size, wanted, named)
        else:
            nodes, victims = leave(size, wanted)
        if nodes > wanted:
            clamps.append(f"down to {wanted} wanted, the others of {nodes} have pods or are not idle for certain")
    failed = tuple(sorted(node.name for node in size.failed))
    counted = (
        max(size.use.wanted, nodes) > size.nodes - size.on_order
    )  # its provider takes a leaving node for one of them
    gone = tuple(sorted(node.name for node in size.leaving)) if counted else ()
    return PoolTarget(
        cluster=size.use.cluster,
        pool=size.use.pool.name,
        nodes=nodes,
        remove=(*failed, *gone, *victims),
        replaces=failed,
        contributions=wishes.all(),
        clamps=tuple(clamps),
    )
