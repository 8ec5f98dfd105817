"""GPUs that are really free, node by node.

A sum over nodes says nothing about a job that needs eight GPUs on one node, so capacity is counted in blocks: how many
times the GPUs of one of the job's pods fit onto the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spillway.model import ClusterState, NodePool, NodeState, PodUse, Reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCapacity:
    """A pool as it is now: free GPUs of each usable node, by name, and how many more nodes may be added."""

    free_gpus: Mapping[str, int]
    nodes_to_add: int

    def blocks(self, gpus: int) -> int:
        """How many pods of that many GPUs the nodes take now."""
        return sum(free // gpus for free in self.free_gpus.values())

    @property
    def largest_block(self) -> int:
        """The most GPUs that are free on one node."""
        return max(self.free_gpus.values(), default=0)


def pool_capacities(state: ClusterState, reservations: Iterable[Reservation]) -> Mapping[str, PoolCapacity]:
    """The capacity of each declared pool of a reachable cluster.

    Taken are the GPUs of every pod on a node, foreign ones too; then, first fit by the order of names, the pods of
    reservations that are not on a node yet, and other pending pods. What fits nowhere takes nothing: a pod that waits
    for eight GPUs on one node does not hold the two it cannot use.
    """
    free = _free_after_running(state)
    on_nodes = Counter(pod.attempt for pod in state.pods if pod.node is not None and pod.attempt is not None)
    ours = sorted((r for r in reservations if r.cluster == state.cluster.name), key=lambda r: (r.attempt, r.pool))
    for reservation in ours:
        nodes = [node.name for node in _usable(state.nodes, reservation.pool)]
        for _ in range(reservation.nodes - on_nodes[reservation.attempt]):
            _take_first_fit(free, nodes, reservation.gpus_per_node)
    reserved = {reservation.attempt for reservation in ours}
    every_node = sorted(free)
    for pod in _pending(state.pods, reserved):
        _take_first_fit(free, every_node, pod.gpus)
    return {pool.name: _pool_capacity(pool, state.nodes, free) for pool in state.cluster.pools}


def _free_after_running(state: ClusterState) -> dict[str, int]:
    taken: Counter[str] = Counter()
    for pod in state.pods:
        if pod.node is not None:
            taken[pod.node] += pod.gpus
    return {
        node.name: max(0, node.allocatable_gpus - taken[node.name])
        for node in state.nodes
        if node.ready and node.schedulable
    }


def _usable(nodes: Iterable[NodeState], pool: str) -> list[NodeState]:
    usable = (node for node in nodes if node.pool == pool and node.ready and node.schedulable)
    return sorted(usable, key=lambda node: node.name)


def _pending(pods: Iterable[PodUse], reserved: set[str]) -> list[PodUse]:
    """Pods without a node whose GPUs no reservation stands for, the largest first."""
    pending = (pod for pod in pods if pod.node is None and pod.attempt not in reserved)
    return sorted(pending, key=lambda pod: (-pod.gpus, pod.namespace, pod.name))


def _take_first_fit(free: dict[str, int], nodes: Sequence[str], gpus: int) -> None:
    for node in nodes:
        if free[node] >= gpus:
            free[node] -= gpus
            return


def _pool_capacity(pool: NodePool, nodes: Iterable[NodeState], free: Mapping[str, int]) -> PoolCapacity:
    members = [node.name for node in nodes if node.pool == pool.name]
    return PoolCapacity(
        free_gpus={name: free[name] for name in members if name in free},
        nodes_to_add=max(0, pool.max_nodes - len(members)),
    )
