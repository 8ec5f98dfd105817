"""What became of orders and changes, seen afterwards: reached, late, refused, failed; people are told once."""

from __future__ import annotations

from datetime import datetime, timedelta

from spillway.errors.counts import counted
from spillway.model import ManualOrder, PoolTarget, PoolUse, ScalingAlert, ScalingChange, ScalingSnapshot
from spillway.runs.notices import targets
from spillway.runs.scaling_facts import Key
from spillway.runs.services import Say, Services
from spillway.scaling.failing import reason
from spillway.scaling.orders import missing


def usable_nodes(use: PoolUse) -> int:
    """How many nodes take pods now."""
    return sum(node.gpus > 0 and not node.draining for node in use.nodes)


def note_effects(services: Services, seen: ScalingSnapshot, say: Say) -> None:
    """Compare what was asked for with what there is, and put on record what has come true or is late.

    Of a pool that is unknown nothing is told: its nodes may be there.
    """
    known = {
        (use.cluster, use.pool.name): use for use in seen.pools if (use.cluster, use.pool.name) not in seen.unknown
    }
    now = seen.taken_at
    for change in services.ledger.last_changes():
        key = (change.cluster, change.pool)
        use = known.get(key)
        if use is not None and change.asked_at is None and was_carried_out(use, change):
            tell_failed(services, use, change, say)
            change = services.ledger.change_is_asked(change, now)
        if use is None or change.asked_at is None or change.reached_at is not None:
            continue
        if is_reached(use, change):
            services.ledger.change_is_reached(change, now)
            after = _since(now - change.asked_at)
            say(f"{_name(key)} has its {counted(change.target.nodes, 'node')} {after} after asking")
        elif use.problem:
            title = f"{_name(key)} does not get its {counted(change.target.nodes, 'node')}: {use.problem}"
            _tell(services, key, f"provider/{change.number}", title, _orders_text(change), say)
    for order in seen.orders:
        use = known.get((order.cluster, order.pool))
        if use is not None and order.ready_by is not None and order.ready_at is None:
            follow_order(services, order, use, say)


def was_carried_out(use: PoolUse, change: ScalingChange) -> bool:
    """Whether the provider has taken a change of which its line does not say so.

    Who asked died before it could, or the answer was lost on its way.
    """
    left = {*change.target.remove} & {node.name for node in use.nodes}
    open_still = {*change.target.drains} & {node.name for node in use.nodes if not node.draining}
    return use.wanted == change.target.nodes and not left and not open_still


def is_reached(use: PoolUse, change: ScalingChange) -> bool:
    """Whether the pool is as the change wanted it: so many nodes that take pods, and none that was to leave."""
    gone = {*change.target.remove}
    return usable_nodes(use) == change.target.nodes and not any(node.name in gone for node in use.nodes)


def follow_order(services: Services, order: ManualOrder, use: PoolUse, say: Say) -> ManualOrder:
    """Say how far an order of more nodes is; put on record when all are ready, and tell people once when they are late.

    Gives the order as it is on record then.
    """
    now = services.clock()
    if usable_nodes(use) >= order.wanted:
        order = services.ledger.order_is_ready(order.order, now)
    say(f"order {order.order}: {order_told(order, use, now)}")
    if order.ready_at is None and missing(order, usable_nodes(use), now):
        place, ready = f"{order.cluster}/{order.pool}", usable_nodes(use)
        title = f"nodes that were ordered of {place} are late: {ready} of {order.wanted} are ready"
        text = f"{order_told(order, use, now)}. Ordered by {order.ordered_by}, order {order.order}."
        _tell(services, (order.cluster, order.pool), f"late/{order.order}", title, text, say)
    return order


def order_told(order: ManualOrder, use: PoolUse, now: datetime) -> str:
    """How far an order of more nodes is, with its timer."""
    ready = usable_nodes(use)
    line = f"{order.cluster}/{order.pool}: {ready} of {counted(order.wanted, 'node')} ready"
    if order.ready_at is not None:
        return f"{line}, all of them {_since(order.ready_at - order.ordered_at)} after they were ordered"
    if order.ready_by is None:
        return line
    left = order.ready_by - now
    clock = f"{_since(left)} left" if left > timedelta() else f"late by {_since(-left)}"
    return f"{line}, {_since(now - order.ordered_at)} after they were ordered, {clock}"


def tell_failed(services: Services, use: PoolUse, change: ScalingChange, say: Say) -> None:
    """Tell of the nodes that failed and are replaced, each once."""
    key = (change.cluster, change.pool)
    for name in change.target.replaces:
        title = f"node {name} of {_name(key)} failed and is replaced"
        text = (
            f"It had no usable GPUs for longer than {_since(use.boot_allowance)}; another one was ordered in its place."
        )
        _tell(services, key, f"failed/{change.cluster}/{name}/{change.number}", title, text, say)


def tell_given_up(services: Services, target: PoolTarget, say: Say) -> None:
    """Tell once that failed nodes of the pool are not replaced any more."""
    key, until = (target.cluster, target.pool), target.given_up_until
    if until is not None:
        title = f"{_name(key)} gets no more nodes: those that replace failed ones fail too"
        occasion = f"given-up/{_name(key)}/{until.isoformat(timespec='seconds')}"
        _tell(services, key, occasion, title, f"{reason(until)}.", say)


def tell_refused(services: Services, change: ScalingChange, say: Say) -> None:
    """Tell once of a provider that does not carry out what is wanted, whatever that comes to until it does again."""
    key = (change.cluster, change.pool)
    title = f"{_name(key)} was not brought from {change.before} to {counted(change.target.nodes, 'node')}"
    first = services.ledger.refused_since(change)
    _tell(services, key, f"refused/{first}", title, f"{change.problem}. {_orders_text(change)}", say)


def _tell(services: Services, key: Key, occasion: str, title: str, text: str, say: Say) -> None:
    """Put a notice on record for everybody who is told of all departments: pools belong to none."""
    cluster, pool = key
    names = [target.name for target in targets(services.configuration, None)]
    alert = ScalingAlert(alert=occasion, cluster=cluster, pool=pool, title=title, text=text, seen_at=services.clock())
    if services.ledger.note_alert(alert, names):
        say(f"{title}; to be told: {', '.join(names) or 'nobody, for no target of all departments is declared'}")


def _orders_text(change: ScalingChange) -> str:
    wishes = "; ".join(f"{wish.source} wants {wish.nodes}: {wish.reason}" for wish in change.target.contributions)
    return f"Wanted because of: {wishes or 'nothing on record'}. The next look tries it again."


def _name(key: Key) -> str:
    return "/".join(key)


def _since(lasting: timedelta) -> str:
    seconds = int(lasting.total_seconds())
    return f"{seconds // 60}:{seconds % 60:02} min"
