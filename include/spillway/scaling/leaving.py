"""Which nodes leave: never one with a pod, the oldest idle first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from spillway.model import ScalableNode
from spillway.scaling.demand import PoolDemand
from spillway.scaling.sizes import PoolSize


def unneeded(size: PoolSize, demand: PoolDemand, moment: datetime | None = None) -> int:
    """How many nodes are idle since then or longer, or at all, beside those that waiting jobs are about to take.

    What waits takes the nodes that became idle last.
    """
    old = len(size.idle_since(moment))
    return max(0, old - max(0, demand.reserved - (len(size.idle) - old)))


def without(size: PoolSize, idle: int) -> int:
    """How many nodes there are once so many idle ones have left: where any does, no failed one is missed either."""
    return size.nodes - idle - (len(size.failed) if idle else 0)


def leave(size: PoolSize, *, wanted: int, bound: int, named: Collection[str] = ()) -> tuple[int, tuple[str, ...]]:
    """Come down to ``wanted`` nodes by idle ones, and to ``bound`` by all without a pod: how many stay, and who leaves.

    The places of failed nodes are the first that are not filled anew. What boots or is on order is left to come, but
    for the bound.

    Args:
        named: what leaves for the bound; any node without a pod where none is named.
    """
    surplus = max(0, size.nodes - wanted)
    unfilled = min(surplus, len(size.failed))
    idle = size.idle_since(None) if surplus > unfilled or size.nodes > bound else ()
    victims = idle[: surplus - unfilled]
    nodes = size.nodes - unfilled - len(victims)
    if nodes > bound:
        undone = min(nodes - bound, len(size.failed) - unfilled + size.on_order)
        empty = [node for node in _empty(size, idle[len(victims) :]) if not named or node.name in named]
        more = tuple(empty[: nodes - bound - undone])
        nodes, victims = nodes - undone - len(more), (*victims, *more)
    return nodes, tuple(node.name for node in victims)


def _empty(size: PoolSize, idle: Iterable[ScalableNode]) -> Iterator[ScalableNode]:
    """What has no pod: the youngest that boots, the oldest that is idle, and last those of which nobody knows more."""
    yield from sorted(size.booting, key=_age, reverse=True)
    yield from idle
    yield from sorted((node for node in size.idle if node.idle_since is None), key=_age)


def _age(node: ScalableNode) -> tuple[datetime, str]:
    return node.created_at, node.name
