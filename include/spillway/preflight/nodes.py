"""The gaps of nodes: pools without any, with those of another shape, with some that another pool has."""

from __future__ import annotations

from collections.abc import Iterator

from spillway.errors.counts import counted
from spillway.model import ClusterState, NodePool, NodeState, SiteKind
from spillway.preflight.gaps import Gap


def node_gaps(state: ClusterState) -> Iterator[Gap]:
    """What is wrong with the nodes for the pools that are declared of them."""
    name = state.cluster.name
    for_gpus = {pool.name for pool in state.cluster.pools if pool.gpus_per_node}
    with_gpus = [node for node in state.nodes if node.pool in for_gpus]
    if with_gpus and not any(node.allocatable_gpus for node in with_gpus):
        yield Gap(
            cluster=name,
            part="nodes",
            problem=f"of {counted(len(with_gpus), 'node')} in its pools with GPUs none has one to give",
            fix="install the NVIDIA device plugin, or look at the one on its nodes",
        )
    for pool in state.cluster.pools:
        yield from _pool_gaps(state, pool)


def _pool_gaps(state: ClusterState, pool: NodePool) -> Iterator[Gap]:
    name = state.cluster.name
    members = [node for node in state.nodes if node.pool == pool.name]
    selector = ", ".join(f"{key}={value}" for key, value in pool.node_selector.items()) or "every node"
    taken = _taken_nodes(state, pool, without_any=not members)
    if taken:
        first, *more = taken
        yield Gap(
            cluster=name,
            part=f"pool {pool.name}",
            problem=f"its selector ({selector}) matches node {first.name} too, which pool {first.pool} has"
            + (f", and {len(more)} more" if more else ""),
            fix="select each pool's nodes by a label of their own: of pools that match a node the one with most "
            "labels in its selector has it, and of equally many the first in clusters.yaml",
        )
    elif not members:
        may_scale = state.cluster.kind is SiteKind.CLOUD
        fix = "label its nodes or correct node_selector in clusters.yaml"
        yield Gap(
            cluster=name,
            part=f"pool {pool.name}",
            problem=f"no node matches its selector ({selector})",
            fix=f"{fix}; nothing, if it scales from zero" if may_scale else fix,
            checked=not may_scale,
        )
    odd = [node for node in members if node.allocatable_gpus not in {0, pool.devices_per_node}]
    for node in odd:
        yield Gap(
            cluster=name,
            part=f"pool {pool.name}",
            problem=f"node {node.name} has {node.allocatable_gpus} {pool.gpu_resource}, "
            f"declared are {pool.devices_per_node}",
            fix="correct gpus_per_node or gpu_share in clusters.yaml, or look at the node's device plugin",
        )


def _taken_nodes(state: ClusterState, pool: NodePool, *, without_any: bool) -> list[NodeState]:
    """The nodes that an equally specific pool has, and where the pool is ``without_any`` those of more specific ones.

    A pool that gets what more specific ones leave is meant so, as long as they leave it any.
    """
    labels: dict[str | None, int] = {other.name: len(other.node_selector) for other in state.cluster.pools}
    matched = [node for node in state.nodes if pool.name in node.also_matches]
    return [node for node in matched if without_any or labels[node.pool] == labels[pool.name]]
