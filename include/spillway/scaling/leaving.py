"""Which nodes leave: never one with a pod, the oldest idle first."""

from __future__ import annotations

from collections.abc import Collection
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


def leave(size: PoolSize, nodes: int) -> tuple[int, tuple[str, ...]]:
    """Come down to so many nodes, as far as idle ones allow it: how many it then has, and which leave.

    The places of failed nodes are the first that are not filled anew; what is booting or on order is left to come.
    """
    surplus = max(0, size.nodes - nodes - len(size.failed))
    victims = size.idle_since(None)[:surplus] if surplus else ()
    dropped = min(len(size.failed), max(0, size.nodes - nodes)) + len(victims)
    return size.nodes - dropped, tuple(node.name for node in victims)


def leave_by_force(size: PoolSize, nodes: int, named: Collection[str] = ()) -> tuple[int, tuple[str, ...]]:
    """Come down to so many nodes as far as those without a pod allow it, booting ones and orders too.

    Args:
        named: the only nodes that leave; all that have no pod where there are none.
    """
    surplus = max(0, size.nodes - nodes)
    undone = min(surplus, len(size.failed) + size.on_order)
    youngest_first = sorted(size.booting, key=lambda node: (node.created_at, node.name), reverse=True)
    known = size.idle_since(None)
    others = sorted((node for node in size.idle if node.idle_since is None), key=_since_created)
    empty = [node for node in (*youngest_first, *known, *others) if not named or node.name in named]
    victims = empty[: surplus - undone]
    return size.nodes - undone - len(victims), tuple(node.name for node in victims)


def _since_created(node: ScalableNode) -> tuple[datetime, str]:
    return node.created_at, node.name
