"""Nodes of a simulated pool: which jobs lie where, and what is free."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from spillway.model import Cluster, NodePool, NodeState, PoolUse, ScalableNode, SiteKind
from spillway.scaling.packing import FreeNodes


class Node:
    """A node; ``ready_at`` and ``idle_since`` are seconds of the replay, None while it boots or has pods."""

    __slots__ = ("created_at", "free", "idle_since", "name", "ready_at", "runs", "seen")

    def __init__(self, name: str, created_at: float) -> None:
        self.name, self.created_at = name, created_at
        self.ready_at: float | None = None
        self.idle_since: float | None = None
        self.free = 0
        self.runs: dict[int, int] = {}
        self.seen: ScalableNode | None = None


class Pool:
    """The nodes of a declared pool; ``place`` is its position among the places of a result.

    ``unanswered`` nodes were ordered while it was ``sold_out``. ``verdicts`` are those that still hold.
    """

    def __init__(self, cluster: Cluster, pool: NodePool, place: int) -> None:
        self.cluster, self.declared, self.place = cluster, pool, place
        self.key = (cluster.name, pool.name)
        self.gpus_per_node = pool.gpus_per_node
        self.nodes: dict[str, Node] = {}
        self.by_free: list[dict[str, Node]] = [{} for _ in range(pool.gpus_per_node + 1)]
        self.room = FreeNodes(())
        self.bought = cluster.kind is not SiteKind.ONPREM
        self.idle = 0
        self.booting = 0
        self.unanswered = 0
        self.sold_out = False
        self._made = 0
        self._use: PoolUse | None = None
        self.verdicts: dict[tuple[int, int], int] = {}

    def order(self, at: float) -> Node:
        """A node that boots from now on."""
        node = Node(f"{self.declared.name}-{self._made}", at)
        self._made += 1
        self._touched()
        self.booting += 1
        self.nodes[node.name] = node
        return node

    def ready(self, node: Node, at: float) -> None:
        node.ready_at = node.idle_since = at
        node.free, node.seen = self.gpus_per_node, None
        self._touched()
        self.booting -= 1
        self.idle += 1
        self.by_free[node.free][node.name] = node
        self.room.add(node.free)

    def remove(self, name: str) -> Node:
        """The node is gone, and so are the runs on it."""
        node = self.nodes.pop(name)
        self._touched()
        if node.ready_at is None:
            self.booting -= 1
        else:
            self.idle -= not node.runs
            del self.by_free[node.free][name]
            self.room.add(node.free, -1)
        return node

    def sell_out(self) -> None:
        """All of its nodes are gone and ordered anew, as their provider does it; no run may be on them any more."""
        self.sold_out, self.unanswered = True, self.wanted
        for name in list(self.nodes):
            self.remove(name)

    def verdict(self, shape: tuple[int, int]) -> int:
        """0 where pods of so many GPUs fit now, 1 where they would on nodes that may be added, 2 where they do not."""
        found = self.verdicts[shape] = self._verdict(*shape)
        return found

    def _verdict(self, gpus: int, pods: int) -> int:
        if self.room.fits(gpus, pods):
            return 0
        if gpus > self.gpus_per_node:
            return 2
        more = (self.declared.max_nodes - len(self.nodes)) * (self.gpus_per_node // gpus)
        return 1 if more >= pods or self.room.pods(gpus) + more >= pods else 2

    def take(self, run: int, gpus: int, pods: int) -> list[Node]:
        """Put the run's pods on the nodes that ``FreeNodes.take`` has them on, of equal ones the first; they fit."""
        found = []
        free = gpus
        while pods:
            alike = self.by_free[free]
            if not alike:
                free += 1
                continue
            node = next(iter(alike.values()))
            put = min(pods, free // gpus)
            self._change(node, node.free - put * gpus)
            if not node.runs:
                self.idle -= 1
                node.idle_since = None
            node.runs[run] = put * gpus
            pods -= put
            found.append(node)
        return found

    def give(self, run: int, nodes: Iterable[Node], at: float) -> None:
        """The run's pods are gone."""
        for node in nodes:
            self._change(node, node.free + node.runs.pop(run))
            if not node.runs:
                self.idle += 1
                node.idle_since = at

    def _change(self, node: Node, free: int) -> None:
        del self.by_free[node.free][node.name]
        self.by_free[free][node.name] = node
        self.room.change(node.free, free)
        node.free, node.seen = free, None
        self._touched()

    def _touched(self) -> None:
        """What was worked out of it holds no longer."""
        self._use = None
        self.verdicts.clear()

    @property
    def wanted(self) -> int:
        """How many nodes were asked for."""
        return len(self.nodes) + self.unanswered

    @property
    def usable_gpus(self) -> int:
        """Those of nodes that have booted."""
        return (len(self.nodes) - self.booting) * self.gpus_per_node

    def states(self) -> tuple[NodeState, ...]:
        """The nodes as a placement sees them."""
        return tuple(
            NodeState(
                name=node.name,
                pool=self.declared.name,
                ready=node.ready_at is not None,
                schedulable=True,
                allocatable_gpus=0 if node.ready_at is None else self.gpus_per_node,
            )
            for node in self.nodes.values()
        )

    def use(self, epoch: datetime) -> PoolUse:
        """The pool as the scaler sees it; the same object while nothing has happened to it."""
        if self._use is None or self._use.wanted != self.wanted:
            for node in self.nodes.values():
                if node.seen is None:
                    node.seen = _scalable(node, self.gpus_per_node, epoch)
            nodes = tuple([node.seen for node in self.nodes.values() if node.seen is not None])
            self._use = PoolUse(cluster=self.cluster.name, pool=self.declared, wanted=self.wanted, nodes=nodes)
        return self._use


def _scalable(node: Node, gpus: int, epoch: datetime) -> ScalableNode:
    def moment(seconds: float | None) -> datetime | None:
        return None if seconds is None else epoch + timedelta(seconds=seconds)

    return ScalableNode(
        name=node.name,
        created_at=epoch + timedelta(seconds=node.created_at),
        gpus=0 if node.ready_at is None else gpus,
        free_gpus=node.free,
        pods=len(node.runs),
        ready_at=moment(node.ready_at),
        idle_since=moment(node.idle_since),
    )
