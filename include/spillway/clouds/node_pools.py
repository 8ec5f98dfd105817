"""The node pools of a cluster, through its Kubernetes API and the provider of each pool's nodes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import sleep

from spillway.clouds.api import ApiRefusal, KubernetesApi
from spillway.clouds.base import NodeProvider
from spillway.clouds.facts import Json, node_state
from spillway.clouds.scalable import (
    IDLE_SINCE,
    LEAVING,
    PoolLook,
    holds_a_node,
    is_leaving,
    where,
)
from spillway.errors import AccessDenied, PoolRefused, SpillwayError, UnknownName
from spillway.errors.counts import counted
from spillway.model import Cluster, NodePool, PoolUse, ScalableNode

SETTLE_SECONDS = 5.0
"""So long a node that leaves is cordoned before it is looked at once more. A scheduler hears of it within a second, and
binds no pod to it from then on."""
_MERGE_PATCH = "application/merge-patch+json"
_LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_log = logging.getLogger(__name__)


class NodePools:
    """A ``NodePoolScaler``. ``providers`` are those of the pools that can be scaled, or why there is none, by pool."""

    def __init__(
        self, *, cluster: Cluster, api: KubernetesApi, providers: Mapping[str, NodeProvider | SpillwayError]
    ) -> None:
        self._cluster, self._api, self._providers = cluster, api, providers
        self._declared = {pool.name: pool for pool in cluster.pools if pool.name in providers}

    def pools(self, *, mark: bool = True) -> Mapping[str, PoolUse | SpillwayError]:
        nodes, pods = self._nodes(), self._pods()
        return {name: self._use(self._declared[name], nodes, pods, mark=mark) for name in self._providers}

    def set_target(
        self, pool: str, nodes: int, *, remove: Sequence[str] = (), drain: Sequence[str] = ()
    ) -> tuple[str, ...]:
        if pool not in self._providers:
            raise UnknownName(f"pool of cluster '{self._cluster.name}' that can be scaled", pool, self._providers)
        declared = self._declared[pool]
        everything = self._nodes()
        look = PoolLook.of(declared, self._members(declared, everything), self._pods(), self._provider(pool))
        named = (*remove, *drain)
        self._check_size(declared, nodes, look.group.wanted)
        self._check_members(look, declared, everything, named)
        leaving = look.leaving(nodes, named)
        empty = self._cordoned(look, leaving, drain)
        kept = [look.afterwards(node, drain) for node in look.nodes if node.name not in empty]
        wanted = max(nodes, len(kept))
        gone = [look.machines.get(name, name) for name in sorted(empty)]
        self._provider(pool).resize(wanted, kept=kept, leaving=gone)
        _log.info("pool %s/%s: %d nodes are wanted, %d leave", self._cluster.name, pool, wanted, len(gone))
        return tuple(name for name in named if name in leaving - empty)

    def _use(
        self, pool: NodePool, nodes: Sequence[Json], pods: Mapping[str, Sequence[Json]], *, mark: bool
    ) -> PoolUse | SpillwayError:
        scaled_by = pool.scaled_by
        assert scaled_by is not None
        try:
            look = PoolLook.of(pool, self._members(pool, nodes), pods, self._provider(pool.name))
        except SpillwayError as problem:
            return problem
        return PoolUse(
            cluster=self._cluster.name,
            pool=pool,
            wanted=look.group.wanted,
            nodes=tuple(self._marked(node, look.found.get(node.name)) if mark else node for node in look.nodes),
            boot_allowance=scaled_by.boot_allowance,
            problem=look.group.problem,
        )

    def _marked(self, node: ScalableNode, found: Json | None) -> ScalableNode:
        """The node; where it began or ceased to be idle since the last look, its mark is brought up to date."""
        idle = bool(node.gpus) and not node.pods
        if found is None or idle == (IDLE_SINCE in (found["metadata"].get("annotations") or {})):
            return node
        now = datetime.now(UTC).replace(microsecond=0)
        try:
            self._annotate(node.name, {IDLE_SINCE: now.isoformat() if idle else None})
        except (AccessDenied, ApiRefusal) as problem:
            _log.warning("since when node %s is idle is not known: %s", node.name, problem)
            return replace(node, idle_since=None)
        return replace(node, idle_since=now if idle else None)

    def _cordoned(self, look: PoolLook, leaving: Collection[str], drain: Collection[str]) -> frozenset[str]:
        """Cordon what leaves, let all else be used again, and give what is cordoned and, once that is known, empty.

        What a person has cordoned stays so.
        """
        marked = {name for name, node in look.found.items() if is_leaving(node)}
        busy = {node.name for node in look.nodes if node.pods} - {*drain}
        wanted = {name for name in leaving if name not in busy}
        open_still = {
            name
            for name in wanted - marked
            if name in look.found and not (look.found[name].get("spec") or {}).get("unschedulable")
        }
        for name in open_still:
            self._annotate(name, {LEAVING: "true"}, unschedulable=True)
        marked |= open_still
        if open_still:
            sleep(SETTLE_SECONDS)
        pods = self._pods() if wanted else {}  # again: one may have been bound meanwhile
        empty = frozenset(name for name in wanted if not pods.get(name))
        for name in marked - empty - {*drain}:
            self._annotate(name, {LEAVING: None}, unschedulable=False)
        return empty

    def _annotate(self, node: str, annotations: Mapping[str, str | None], **spec: bool) -> None:
        body = {"metadata": {"annotations": annotations}, "spec": spec}
        try:
            self._api.json("PATCH", f"/api/v1/nodes/{node}", body=body, content_type=_MERGE_PATCH)
        except ApiRefusal as refusal:
            if refusal.status != 404:  # what is gone needs no mark
                raise

    def _nodes(self) -> Sequence[Json]:
        return self._api.items("/api/v1/nodes")

    def _members(self, pool: NodePool, nodes: Sequence[Json]) -> Sequence[Json]:
        return [node for node in nodes if node_state(node, self._cluster.pools).pool == pool.name]

    def _pods(self) -> Mapping[str, Sequence[Json]]:
        """The pods that hold a node, by its name."""
        found: dict[str, list[Json]] = {}
        for pod in self._api.items("/api/v1/pods", _LIVE):
            node = where(pod)
            if node is not None and holds_a_node(pod):
                found.setdefault(node, []).append(pod)
        return found

    def _provider(self, pool: str) -> NodeProvider:
        provider = self._providers[pool]
        if isinstance(provider, SpillwayError):
            raise provider
        return provider

    def _check_size(self, pool: NodePool, nodes: int, wanted: int) -> None:
        """A pool outside of what is declared, as after a change of that, may come nearer to it by and by."""
        least = pool.scaled_by.min_nodes if pool.scaled_by else 0
        if not min(least, wanted) <= nodes <= max(pool.max_nodes, wanted):
            raise PoolRefused(
                f"{self._cluster.name}/{pool.name}",
                counted(nodes, "node"),
                f"declared are {least} to {pool.max_nodes}",
                fix="ask for so many, or correct scaled_by.min_nodes and max_nodes in clusters.yaml",
            )

    def _check_members(self, look: PoolLook, pool: NodePool, nodes: Sequence[Json], remove: Sequence[str]) -> None:
        """A node whose machine is on its way out is gone; any other one that is not of the pool is refused."""
        known = {node.name for node in look.nodes}
        for node in nodes:
            name = node["metadata"]["name"]
            if name in remove and name not in known and not is_leaving(node):
                raise PoolRefused(
                    f"{self._cluster.name}/{pool.name}",
                    f"rid of node '{name}'",
                    "it is not one of its nodes",
                    fix="name nodes of this pool; nothing was changed",
                )
