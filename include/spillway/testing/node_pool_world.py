"""A pool of nodes on a real API server, with a test in the place of the nodes' agents and of the pods' owners."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spillway.clouds.api import ApiRefusal, KubernetesApi
from spillway.clouds.base import NodePoolScaler
from spillway.model import Cluster
from spillway.testing.node_pool_contract import GPUS, POOL

_MERGE_PATCH = "application/merge-patch+json"


Machines = Mapping[str, Mapping[str, Any]]
"""By the name of its node, the ``spec`` of the node of each machine that is on."""


@dataclass(kw_only=True)
class PoolWorld:
    """A ``World`` of the contract; other tests use its API server too. ``machines`` are those that its provider has."""

    api: KubernetesApi
    cluster: Cluster
    scaler: NodePoolScaler
    machines: Callable[[PoolWorld], Machines]
    made: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def selector(self) -> Mapping[str, str]:
        return next(pool.node_selector for pool in self.cluster.pools if pool.name == POOL)

    def settle(self) -> None:
        machines = self.machines(self)
        there = self.present()
        for name, node in there.items():
            if name not in machines and self.selector.items() <= node["metadata"]["labels"].items():
                self.leave(name)
        for name, spec in machines.items():
            if name not in there:
                self.join(name, **spec)

    def join(self, name: str, *, labels: Mapping[str, str] | None = None, gpus: int = GPUS, **spec: Any) -> None:
        """A node that boots and is Ready."""
        metadata = {"name": name, "labels": dict(self.selector if labels is None else labels)}
        self.api.json("POST", "/api/v1/nodes", body={"metadata": metadata, "spec": spec})
        self.made.append(name)
        resources = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now}
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
        self._patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def leave(self, name: str) -> None:
        """The node and its pods are gone; one that is gone already is a success."""
        for pod in self.api.items("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"}):
            where = pod["metadata"]
            self._gone(f"/api/v1/namespaces/{where['namespace']}/pods/{where['name']}?gracePeriodSeconds=0")
        self._gone(f"/api/v1/nodes/{name}")
        self.made.remove(name)

    def present(self) -> Mapping[str, Any]:
        """The nodes that this test made and that are there, by their names."""
        found = {node["metadata"]["name"]: node for node in self.api.items("/api/v1/nodes")}
        self.made = [name for name in self.made if name in found]
        return {name: found[name] for name in self.made}

    def add_pod(self, node: str, *, gpus: int = 1, **metadata: Any) -> str:
        name = f"pod-{next(self._numbers)}"
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        pod = {"metadata": {"name": name, **metadata}, "spec": {"nodeName": node, "containers": [container]}}
        self.api.json("POST", self._pods, body=pod)
        return name

    def end_pod(self, name: str) -> None:
        self._patch(f"{self._pods}/{name}/status", {"status": {"phase": "Succeeded"}})

    def add_node_of_another_pool(self) -> str:
        name = f"foreign-{self.cluster.namespace}"
        self.join(name, labels={"owner": "somebody-else"})
        return name

    def cordon(self, node: str) -> None:
        self._patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def cordoned(self) -> frozenset[str]:
        return frozenset(name for name, node in self.present().items() if node["spec"].get("unschedulable"))

    def annotations(self) -> Mapping[str, str]:
        found = (node["metadata"].get("annotations") or {} for node in self.present().values())
        return {name: value for annotations in found for name, value in annotations.items()}

    def clear(self) -> None:
        """Take all out again."""
        for name in list(self.present()):
            self.leave(name)

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.cluster.namespace}/pods"

    def _patch(self, path: str, body: Any) -> None:
        self.api.json("PATCH", path, body=body, content_type=_MERGE_PATCH)

    def _gone(self, path: str) -> None:
        try:
            self.api.json("DELETE", path)
        except ApiRefusal as refusal:
            if refusal.status != 404:
                raise
