"""What a pool has: nodes in use, idle, booting, on order, failed and leaving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from spillway.model import PoolUse, ScalableNode
from spillway.scaling.failing import has_failed


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """A pool by what its nodes do. Every node is in one of these, or was replaced before and is not counted.

    ``busy`` have pods, and stay whatever happens. ``idle`` have none and could take some. ``booting`` are to be usable
    yet. ``failed`` had their time for that; their places are filled anew. ``given_up`` had it too and are not replaced:
    those that the pool need not have at least are among ``leaving``, which are else cordoned and empty. ``held_until``
    is until when no more come then.
    ``on_order`` were asked for and are not there yet. ``coming`` are all that are not usable yet, ``nodes`` is how many
    there are if nothing is done. ``free`` is how many busy nodes have so many free GPUs, by their number.
    """

    use: PoolUse
    key: tuple[str, str]
    busy: int
    idle: tuple[ScalableNode, ...]
    booting: tuple[ScalableNode, ...]
    failed: tuple[ScalableNode, ...]
    given_up: tuple[ScalableNode, ...]
    leaving: tuple[ScalableNode, ...]
    on_order: int
    coming: int
    nodes: int
    free: tuple[int, ...]
    held_until: datetime | None

    @property
    def gpus_per_node(self) -> int:
        return self.use.pool.gpus_per_node

    @property
    def least(self) -> int:
        """How many nodes it always has."""
        scaled_by = self.use.pool.scaled_by
        return 0 if scaled_by is None else scaled_by.min_nodes

    def idle_since(self, moment: datetime | None) -> tuple[ScalableNode, ...]:
        """The nodes without pods since then or longer (None: at all), oldest first; none of which nobody knows it."""
        found = [
            node for node in self.idle if node.idle_since is not None and (moment is None or node.idle_since <= moment)
        ]
        return tuple(sorted(found, key=_age)) if len(found) > 1 else tuple(found)


def size_of(
    use: PoolUse,
    now: datetime,
    *,
    replaced: Mapping[datetime, Set[str]] = MappingProxyType({}),
    held_until: datetime | None = None,
    watched: Sequence[tuple[datetime, datetime]] | None = None,
) -> PoolSize:
    """The pool by what its nodes do at ``now``.

    Args:
        replaced: failed nodes whose places were filled already, and when: they are not counted, and do not fail again.
        held_until: until when failed nodes are not replaced (``failing``).
        watched: see ``ScalingSnapshot``.
    """
    whole = use.pool.gpus_per_node
    busy, free = 0, [0] * (whole + 1)
    idle, booting, failed, leaving = (
        list[ScalableNode](),
        list[ScalableNode](),
        list[ScalableNode](),
        list[ScalableNode](),
    )
    for node in use.nodes:
        if node.pods:
            busy += 1
            if node.free_gpus and not node.draining:
                free[min(node.free_gpus, whole)] += 1
        elif replaced and any(node.name in names and node.created_at <= at for at, names in replaced.items()):
            continue
        elif node.draining:
            leaving.append(node)
        elif node.gpus:
            idle.append(node)
        elif has_failed(node, use, now, watched):
            failed.append(node)
        else:
            booting.append(node)
    usable, late = busy + len(idle), len(booting) + len(failed)
    on_order = max(0, use.wanted - usable - late - len(leaving))
    nodes, coming, given_up = usable + late + on_order, late + on_order, list[ScalableNode]()
    if held_until is not None and failed:
        least = 0 if use.pool.scaled_by is None else use.pool.scaled_by.min_nodes
        given_up, failed, coming = failed, given_up, coming - len(failed)
        beyond = given_up[: max(0, nodes - least)]
        leaving, nodes = leaving + beyond, nodes - len(beyond)
    return PoolSize(
        use=use,
        key=(use.cluster, use.pool.name),
        busy=busy,
        idle=tuple(idle),
        booting=tuple(booting),
        failed=tuple(failed),
        given_up=tuple(given_up),
        leaving=tuple(leaving),
        on_order=on_order,
        coming=coming,
        nodes=nodes,
        free=tuple(free),
        held_until=held_until,
    )


def _age(node: ScalableNode) -> tuple[datetime, datetime, str]:
    assert node.idle_since is not None
    return node.idle_since, node.created_at, node.name
