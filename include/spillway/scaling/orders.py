"""What people ordered of a pool."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from spillway.model import Contribution, ManualOrder, OrderKind, Source


def standing(orders: Iterable[ManualOrder], now: datetime) -> dict[tuple[str, str], tuple[ManualOrder, ...]]:
    """The orders that hold now, by pool, in the order in which they were given."""
    found: dict[tuple[str, str], tuple[ManualOrder, ...]] = {}
    for order in sorted(orders, key=lambda one: (one.ordered_at, one.order)):
        if order.ordered_at <= now and order.holds_at(now):
            key = (order.cluster, order.pool)
            found[key] = (*found.get(key, ()), order)
    return found


def contribution(order: ManualOrder) -> Contribution:
    """How many nodes the order wants its pool to have: at least as many, or at most where it is to shrink."""
    until = order.until.isoformat(timespec="seconds")
    if order.kind is OrderKind.SHRINK:
        reason = f"down to {order.nodes} until {until}, by {order.ordered_by}"
        return Contribution(source=Source.FORCED_SHRINK, nodes=order.nodes, reason=reason)
    ready = "" if order.ready_by is None else f", ready by {order.ready_by.isoformat(timespec='seconds')}"
    reason = f"{order.nodes} beside the {order.base_nodes} of then until {until}, by {order.ordered_by}{ready}"
    return Contribution(source=Source.MANUAL, nodes=order.wanted, reason=reason)


def missing(order: ManualOrder, usable: int, now: datetime) -> int:
    """How many nodes of the order are late: it was to have them ready by now, and ``usable`` are all there are."""
    if order.kind is OrderKind.SHRINK or order.ready_by is None or now <= order.ready_by:
        return 0
    return max(0, order.wanted - usable)
