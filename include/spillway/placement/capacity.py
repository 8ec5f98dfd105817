"""What is really free, node by node.

A sum over nodes says nothing about a job that needs eight GPUs on one node, so capacity is counted in blocks: how many
times the GPUs, cores and memory of one of the job's pods fit onto the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from spillway.model import GPU_RESOURCE, ClusterState, JobSpec, NodePool, NodeState, PodUse, Reservation


class Room(NamedTuple):
    """What is free on a node, or what a pod needs. Cores and memory of a node are None where it does not say them.

    ``gpus`` are what its device plugin gives away: of a pool with ``gpu_share`` parts of GPUs, one for each pod.
    """

    gpus: int
    cpu_millicores: int | None = None
    memory_mib: int | None = None

    def times(self, pod: Room) -> int:
        """How many such pods fit. What a node does not say limits nothing, but pods without GPUs fit by their cores."""
        most = self.gpus // pod.gpus if pod.gpus else (self.cpu_millicores or 0) // (pod.cpu_millicores or 1)
        if most and self.cpu_millicores is not None and pod.cpu_millicores:
            most = min(most, self.cpu_millicores // pod.cpu_millicores)
        if most and self.memory_mib is not None and pod.memory_mib:
            most = min(most, self.memory_mib // pod.memory_mib)
        return most

    @property
    def cores(self) -> str:
        """In words, ``?`` where it does not say them."""
        return "?" if self.cpu_millicores is None else f"{self.cpu_millicores / 1000:g}"

    def less(self, gpus: int, cpu_millicores: int | None, memory_mib: int | None) -> Room:
        return Room(
            max(0, self.gpus - gpus),
            None if self.cpu_millicores is None else max(0, self.cpu_millicores - (cpu_millicores or 0)),
            None if self.memory_mib is None else max(0, self.memory_mib - (memory_mib or 0)),
        )

    def at_most(self, other: Room) -> Room:
        """What a node has now and then, of two moments of the same node."""
        return Room(min(self.gpus, other.gpus), _least(self[1], other[1]), _least(self[2], other[2]))


def _least(now: int | None, then: int | None) -> int | None:
    return None if now is None or then is None else min(now, then)


def need_of(job: JobSpec) -> Room:
    """What each pod of the job needs of its node."""
    return Room(job.gpus_per_node, job.cpu_millicores, job.memory_mib)


@lru_cache(maxsize=1000)
def _empty(gpus: int, cores: float | None, memory: float | None) -> Room:
    return Room(gpus, None if cores is None else int(cores * 1000), None if memory is None else int(memory * 1024))


def empty_node(pool: NodePool) -> Room:
    """What the pool's nodes have when nothing runs on them, as it is declared."""
    return _empty(pool.devices_per_node, pool.cpu_cores_per_node, pool.memory_gib_per_node)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapacity:
    """A pool as it is now: what is free on each usable node, by name, and how many more nodes may be added."""

    free: Mapping[str, Room]
    nodes_to_add: int
    counted: dict[Room, int] = field(default_factory=dict, compare=False, repr=False)
    """Blocks that were counted once: the jobs of a queue have few shapes."""

    def blocks(self, pod: Room) -> int:
        """How many such pods the nodes take now."""
        if pod not in self.counted:
            self.counted[pod] = sum(room.times(pod) for room in self.free.values())
        return self.counted[pod]

    def without(self, nodes: Collection[str]) -> PoolCapacity:
        """The same, without what is free on these nodes."""
        free = {name: room for name, room in self.free.items() if name not in nodes}
        return PoolCapacity(free=free, nodes_to_add=self.nodes_to_add)

    @property
    def largest_block(self) -> int:
        """The most GPUs that are free on one node."""
        return max((room.gpus for room in self.free.values()), default=0)


class ClusterUse:
    """A cluster's pods and promises, sorted once by node and by pool: what is free now, and once some have ended.

    Taken is what every pod on a node takes, foreign ones too; then, first fit by the order of names, the pods of
    reservations that are not on a node yet, and other pending pods. What fits nowhere takes nothing: a pod that waits
    for eight GPUs on one node does not hold the two it cannot use. One for which others give way is packed last, into
    what they will leave, and what is free now beside them is its own as far as it needs that.
    """

    def __init__(self, state: ClusterState, reservations: Iterable[Reservation]) -> None:
        ours = (r for r in reservations if r.cluster == state.cluster.name)
        self.promised = tuple(sorted(ours, key=lambda r: (bool(r.displaces), r.attempt, r.pool)))
        self._pools = state.cluster.pools
        self._declared = {pool.name: pool for pool in self._pools}
        self._usable = _usable(state.nodes)
        resources = {pool.name: pool.gpu_resource for pool in state.cluster.pools}
        self._pool_of = {node.name: node.pool for node in state.nodes}
        self._resource_of = {node.name: resources.get(node.pool or "", GPU_RESOURCE) for node in state.nodes}
        self._members = Counter(node.pool for node in state.nodes)
        self._on_nodes = Counter(pod.attempt for pod in state.pods if pod.node is not None and pod.attempt is not None)
        self._unbound = [
            (reservation, _pod_of(reservation), missing)
            for reservation in self.promised
            if (missing := reservation.nodes - self._on_nodes[reservation.attempt]) > 0
        ]
        self._pending = _pending(state.pods, {reservation.attempt for reservation in self.promised})
        self._nodes = {
            node.name: Room(node.allocatable_gpus, node.cpu_millicores, node.memory_mib)
            for node in state.nodes
            if node.ready and node.schedulable
        }
        self._names = sorted(self._nodes)
        self._running: dict[str, list[PodUse]] = {name: [] for name in self._nodes}
        self._nodes_of: dict[str | None, set[str]] = {}
        for pod in state.pods:
            if pod.node in self._nodes:
                self._running[pod.node].append(pod)
                self._nodes_of.setdefault(pod.attempt, set()).add(pod.node)
        self._there = {reservation.attempt for reservation in self.promised}.union(filter(None, self._nodes_of))
        self._free = {name: self.left(name) for name in self._nodes}

    def capacities(self, ended: Set[str] = frozenset()) -> Mapping[str, PoolCapacity]:
        """The capacity of each declared pool, when these attempts have ended."""
        free = self._packed(self._nodes, ended)
        return {pool.name: self._of_pool(pool, free) for pool in self._pools}

    def capacity(self, pool: str, ended: Set[str] = frozenset()) -> PoolCapacity:
        """The capacity of a pool, when these attempts have ended: for who asks about one pool at many moments."""
        nodes = self._nodes if self._pending else self._usable.get(pool, ())
        return self._of_pool(self._declared[pool], self._packed(nodes, ended, pool))

    def bearing_on(self, pool: str) -> Sequence[Reservation]:
        """The promises whose end may change what is free in the pool; where pods are pending, which may come to lie in
        any pool, all of them.
        """
        return self.promised if self._pending else self._bearing.get(pool, ())

    @cached_property
    def _bearing(self) -> Mapping[str | None, Sequence[Reservation]]:
        found: dict[str | None, list[Reservation]] = {}
        for reservation in self.promised:
            lies_in = {self._pool_of[node] for node in self._nodes_of.get(reservation.attempt, ())}
            for pool in {reservation.pool, *lies_in}:
                found.setdefault(pool, []).append(reservation)
        return found

    def _packed(self, nodes: Iterable[str], ended: Set[str], pool: str | None = None) -> dict[str, Room]:
        """What is free on these nodes once all that was promised or is pending has found its place.

        Where others are still to make room for a promise, what it needs of theirs and of what is free is nobody else's.

        Args:
            pool: that they are the nodes of; None where they are all nodes.
        """
        free = self._filled(nodes, ended, pool)
        open_now = (reservation for reservation, _, _ in self._unbound if reservation.attempt not in ended)
        if leaving := {label for reservation in open_now for label in self._awaited(reservation, ended)}:
            later = self._filled(nodes, ended | leaving, pool)
            free = {node: room.at_most(later[node]) for node, room in free.items()}
        return free

    def _filled(self, nodes: Iterable[str], ended: Set[str], pool: str | None) -> dict[str, Room]:
        """The same without the promises that wait for others to end."""
        free = {node: self._free[node] for node in nodes}
        for node in {node for attempt in ended for node in self._nodes_of.get(attempt, ())}:
            if node in free:
                free[node] = self.left(node, ended)
        for reservation, pod, missing in self._unbound:
            here = self._pending or pool in {None, reservation.pool}
            if here and reservation.attempt not in ended and not self._awaited(reservation, ended):
                for _ in range(missing):
                    _take_first_fit(free, self._usable.get(reservation.pool, []), pod)
        for use in self._pending:
            having = [name for name in self._names if self._resource_of[name] == use.gpu_resource]
            _take_first_fit(free, having, Room(use.gpus, use.cpu_millicores, use.memory_mib))
        return free

    def _of_pool(self, pool: NodePool, free: Mapping[str, Room]) -> PoolCapacity:
        return PoolCapacity(
            free={name: free[name] for name in self._usable.get(pool.name, [])},
            nodes_to_add=max(0, pool.max_nodes - self._members[pool.name]),
        )

    def _awaited(self, reservation: Reservation, ended: Set[str]) -> Set[str]:
        """Those that are to make room for it and are still there."""
        return self._there.intersection(reservation.displaces) - ended if reservation.displaces else frozenset()

    def usable(self, pool: str) -> Sequence[str]:
        """The names of the pool's nodes that take pods, in their order."""
        return self._usable.get(pool, [])

    def attempts_on(self, node: str) -> frozenset[str]:
        """The attempts that have a pod on the node."""
        return frozenset(pod.attempt for pod in self._running[node] if pod.attempt is not None)

    def left(self, node: str, ended: Set[str] = frozenset()) -> Room:
        """What pods leave of the node when these attempts have ended; those that are promised take nothing of it."""
        room = self._nodes[node]
        for pod in self._running[node]:
            if pod.attempt not in ended:
                gpus = pod.gpus if pod.gpu_resource == self._resource_of[node] else 0
                room = room.less(gpus, pod.cpu_millicores, pod.memory_mib)
        return room


def _pod_of(reservation: Reservation) -> Room:
    return Room(reservation.gpus_per_node, reservation.cpu_millicores_per_node, reservation.memory_mib_per_node)


def _usable(nodes: Iterable[NodeState]) -> Mapping[str, Sequence[str]]:
    """The names of nodes that take pods, in their order, by pool."""
    names: dict[str, list[str]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        if node.pool is not None and node.ready and node.schedulable:
            names.setdefault(node.pool, []).append(node.name)
    return names


def _pending(pods: Iterable[PodUse], reserved: set[str]) -> list[PodUse]:
    """Pods without a node whose GPUs no reservation stands for, the largest first."""
    pending = (pod for pod in pods if pod.node is None and pod.attempt not in reserved)
    return sorted(pending, key=lambda pod: (-pod.gpus, pod.namespace, pod.name))


def _take_first_fit(free: dict[str, Room], nodes: Sequence[str], pod: Room) -> None:
    for node in nodes:
        if free[node].times(pod):
            free[node] = free[node].less(*pod)
            return
