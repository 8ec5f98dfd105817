"""The one plan for all pools.

Who wins, the later over the earlier:

1. the reactive rule, and the forecast: the higher of both;
2. release hours: idle nodes leave whatever the forecast says, those that a waiting job is about to take stay;
3. the nodes of a window, a person's order of more: the highest of all;
4. a forced shrink;
5. what the pool has at least and at most by its declaration, and what the budget bears;
6. pods: a node with one stays.

While a pool is unknown nothing is ordered elsewhere because it is missing: see ``_patient``, ``ahead.foreseen``,
``reactive.react`` and ``wishes.wishes_of``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from spillway.errors.counts import counted
from spillway.model import Forecast, ManualOrder, OrderKind, PoolTarget, ScalingSnapshot
from spillway.scaling.ahead import foreseen
from spillway.scaling.demand import demand_of
from spillway.scaling.failing import given_up_until
from spillway.scaling.failing import reason as given_up
from spillway.scaling.leaving import leave
from spillway.scaling.money import Purse, node_hour
from spillway.scaling.orders import standing
from spillway.scaling.reactive import react
from spillway.scaling.rules import QueueRule, ScalingRules
from spillway.scaling.sizes import PoolSize, size_of
from spillway.scaling.waiting import beyond
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
    orders: Orders = standing(snapshot.orders, now) if snapshot.orders else {}
    sizes = _known(snapshot, orders)
    purse = Purse(snapshot.money_left, sizes)
    room = {size.key: _room(size, orders.get(size.key, ()), purse) for size in sizes}
    demand = demand_of(snapshot.queue, sizes, room, now, patient=_patient(snapshot, rules))
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


def _patient(snapshot: ScalingSnapshot, rules: ScalingRules) -> Set[str]:
    """The runs that no nodes are ordered for yet: by a rule for the queue, or as a pool where they wait is unknown.

    There may be room for them there, or nodes on their way.
    """
    rule, now, queue = rules.reactive, snapshot.taken_at, snapshot.queue
    unsure = {job.run for job in queue if job.places & snapshot.unknown.keys()} if snapshot.unknown else frozenset()
    if not isinstance(rule, QueueRule):
        return unsure
    old = [job for job in queue if now - job.since >= rule.after] if rule.after else queue
    left = beyond(old, snapshot.endings, now, rule.within) if rule.within and snapshot.endings else old
    return unsure | {job.run for job in queue} - {job.run for job in left} if len(left) < len(queue) else unsure


def _known(snapshot: ScalingSnapshot, orders: Orders) -> list[PoolSize]:
    """The pools that are known, those first whose GPUs cost least; those without a price last."""
    sizes = []
    for use in snapshot.pools:
        key = (use.cluster, use.pool.name)
        if key not in snapshot.unknown:
            replaced = snapshot.replaced.get(key, {})
            held_until = given_up_until(use, replaced, orders.get(key, ()), snapshot.taken_at)
            now, watched = snapshot.taken_at, snapshot.watched
            sizes.append(size_of(use, now, replaced=replaced, held_until=held_until, watched=watched))
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
    """How many more nodes the pool may have; less than 0 where it has too many."""
    most = min([size.use.pool.max_nodes, *(order.nodes for order in orders if order.kind is OrderKind.SHRINK)])
    affordable, room = purse.affords(size), most - size.nodes
    if size.held_until is not None:
        return min(room, 0)
    return room if affordable is None else min(room, affordable)


def _target(size: PoolSize, wishes: Wishes, orders: Sequence[ManualOrder], purse: Purse) -> PoolTarget:
    """What the wishes come to, within what the pool may have, what the budget bears, and what pods allow."""
    least, most, wanted, clamps = size.least, size.use.pool.max_nodes, max(size.least, wishes.nodes), list[str]()
    if wanted > most:
        clamps.append(f"{counted(wanted, 'node')} wanted, it may have {most}")
    bound = most if wishes.bound is None else max(least, min(most, wishes.bound))
    nodes, victims = min(wanted, bound), tuple[str, ...]()
    if size.held_until is not None:
        clamps.append(given_up(size.held_until))
        nodes = min(nodes, size.nodes)
    if nodes > size.nodes:
        affordable = purse.affords(size)
        if affordable is not None and nodes - size.nodes > affordable:
            clamps.append(f"{counted(nodes - size.nodes, 'more node')} wanted, the budget bears {affordable}")
            nodes = size.nodes + affordable
        purse.spend(size, nodes - size.nodes)
    elif nodes < size.nodes:
        named = {name for order in orders for name in order.remove}
        nodes, victims = leave(size, wanted=wanted, bound=bound, named=named)
        if nodes > min(wanted, bound):
            said = f"down to {min(wanted, bound)} wanted, the others of {nodes} have pods or are not idle for certain"
            clamps.append(said)
    failed = tuple(sorted(node.name for node in size.failed))
    still_wanted = size.use.wanted > size.nodes - size.on_order  # else they are gone for good, or can come back
    gone = tuple(sorted(node.name for node in size.leaving)) if still_wanted else ()
    return PoolTarget(
        cluster=size.use.cluster,
        pool=size.use.pool.name,
        nodes=nodes,
        remove=(*failed, *gone, *victims),
        replaces=failed,
        contributions=wishes.all(),
        clamps=tuple(clamps),
        given_up_until=size.held_until if size.given_up else None,
    )
