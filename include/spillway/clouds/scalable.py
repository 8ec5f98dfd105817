"""The nodes of a pool that can be scaled, read from the answers of a Kubernetes API."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spillway.clouds.base import Machine, NodeGroup, NodeProvider
from spillway.clouds.facts import Json, gives_way, gpus_of, is_over, moment, node_condition, node_state
from spillway.model import NodePool, ScalableNode

IDLE_SINCE = "spillway.dev/idle-since"
"""Annotation of a node: when it was first seen without a pod."""
LEAVING = "spillway.dev/leaving"
"""Annotation of a node that was cordoned here because it is to leave its pool."""


def holds_a_node(pod: Json) -> bool:
    """Whether a node with this pod must not be removed: not for one that every node has, nor for a placeholder."""
    metadata = pod["metadata"]
    owners = {owner["kind"] for owner in metadata.get("ownerReferences") or ()}
    everywhere = "DaemonSet" in owners or "kubernetes.io/config.mirror" in (metadata.get("annotations") or {})
    return not (is_over(pod) or everywhere or gives_way(pod))


def where(pod: Json) -> str | None:
    """The node that a pod runs on, is bound to, or is about to get by displacing others."""
    named: str | None = pod["spec"].get("nodeName") or (pod.get("status") or {}).get("nominatedNodeName")
    return named


def scalable_node(node: Json, pool: NodePool, pods: Iterable[Json], machine: Machine | None = None) -> ScalableNode:
    """The node as it is now; ``pods`` are those that hold it."""
    there = list(pods)
    state, condition = node_state(node, (pool,)), node_condition(node)
    gpus = state.allocatable_gpus // pool.devices_per_gpu if state.ready else 0
    taken = -(-sum(gpus_of(pod["spec"], pool.gpu_resource) for pod in there) // pool.devices_per_gpu)
    idle = moment((node["metadata"].get("annotations") or {}).get(IDLE_SINCE))
    created_at = machine.ordered_at if machine else moment(node["metadata"]["creationTimestamp"])
    assert created_at is not None
    return ScalableNode(
        name=node["metadata"]["name"],
        created_at=created_at,
        gpus=gpus,
        free_gpus=max(0, gpus - taken),
        pods=len(there),
        ready_at=condition.changed_at if state.ready else None,
        idle_since=None if there else idle,
        draining=condition.leaving,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLook:
    """A pool as Kubernetes and its provider know it: ``nodes`` in the order of their names, ``found`` the objects of
    those that Kubernetes has."""

    group: NodeGroup
    nodes: tuple[ScalableNode, ...]
    found: Mapping[str, Json]
    machines: Mapping[str, str]
    """By the name of the node, its machine's."""

    @classmethod
    def of(
        cls, pool: NodePool, members: Sequence[Json], pods: Mapping[str, Sequence[Json]], provider: NodeProvider
    ) -> PoolLook:
        """A look at the pool; ``members`` match its selector, ``pods`` hold nodes, by their names.

        Where the provider knows the machines, a node that is none of them is none of the pool's. Raises as the
        provider does.
        """
        group = provider.group([scalable_node(node, pool, pods.get(node["metadata"]["name"], ())) for node in members])
        machines = {node["metadata"]["name"]: _machine(node, group) for node in members}
        found = {
            node["metadata"]["name"]: node
            for node in members
            if group.machines is None or machines[node["metadata"]["name"]]
        }
        known = {machine.name for machine in machines.values() if machine}
        nodes = [scalable_node(node, pool, pods.get(name, ()), machines[name]) for name, node in found.items()]
        nodes += [
            ScalableNode(name=machine.name, created_at=machine.ordered_at, gpus=0, free_gpus=0)
            for machine in group.machines or ()
            if machine.name not in known
        ]
        return cls(
            group=group,
            nodes=tuple(sorted(nodes, key=lambda node: node.name)),
            found=found,
            machines={name: machine.name for name, machine in machines.items() if machine},
        )

    def leaving(self, wanted: int, remove: Collection[str]) -> frozenset[str]:
        """The nodes that leave: those named and those that were to leave before, but for as many of these as are wanted
        again, the newest first."""
        named = {node.name for node in self.nodes if node.name in remove}
        before = [node for node in self.nodes if node.name not in named and is_leaving(self.found.get(node.name))]
        before.sort(key=lambda node: node.created_at)
        back = max(0, wanted - (len(self.nodes) - len(named) - len(before)))
        return frozenset(named | {node.name for node in before[: max(0, len(before) - back)]})

    def afterwards(self, node: ScalableNode, drain: Collection[str]) -> ScalableNode:
        """A node that stays: it drains if it is to, or a person has cordoned it."""
        by_a_person = node.draining and not is_leaving(self.found.get(node.name))
        return replace(node, draining=by_a_person or node.name in drain)


def _machine(node: Json, group: NodeGroup) -> Machine | None:
    names = {node["metadata"]["name"], ((node.get("spec") or {}).get("providerID") or "").rpartition("/")[2]}
    return next((machine for machine in group.machines or () if machine.name in names), None)


def is_leaving(node: Json | None) -> bool:
    """Whether it was cordoned here to leave its pool."""
    return node is not None and LEAVING in (node["metadata"].get("annotations") or {})
