"""The node that the agent stands for: its object, its heartbeat, and the facts its pods are told."""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from spillway.sandbox.agent.client import UNAVAILABLE, ApiClient, ApiFailure, persist
from spillway.sandbox.kube.quantities import stamp
from spillway.sandbox.kube.resources import condition, set_condition

log = logging.getLogger(__name__)

GPU = "nvidia.com/gpu"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_CAPACITY = {"cpu": "8", "memory": "16Gi", "pods": "110"}
"""Besides GPUs; as much as the sandbox's jobs ask for, whatever the machine beneath has."""
_HEARTBEAT_SECONDS = 1.0
_STATUS_EVERY_BEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the node offers. ``isolation`` is root, user or plain; ``masks`` are hidden from its containers."""

    name: str
    gpus: int
    gpu_model: str
    address: str
    port: int
    labels: Mapping[str, str]
    masks: tuple[str, ...]
    root: Path
    isolation: str


class Node:
    """The node's side of the API: registered once, then kept alive by a lease."""

    def __init__(self, facts: NodeFacts, api: ApiClient) -> None:
        self.facts, self._api = facts, api
        self.shutting_down = False

    @property
    def fields(self) -> dict[str, str]:
        """Answers to the fieldRefs that only the node knows."""
        address = self.facts.address
        return {"status.podIP": address, "status.hostIP": address, "spec.nodeName": self.facts.name}

    def pod_directory(self, uid: str) -> Path:
        return self.facts.root / "pods" / uid

    async def register(self) -> None:
        """Make the node object, or bring its labels up to date; waits for an API server that is away."""
        labels = {
            "kubernetes.io/hostname": self.facts.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            "nvidia.com/gpu.product": self.facts.gpu_model,
            **self.facts.labels,
        }
        await persist(
            lambda: self._api.apply("/api/v1/nodes", {"metadata": {"name": self.facts.name, "labels": labels}})
        )
        await persist(self.send_status)

    async def keep_alive(self) -> None:
        """Renew the lease for ever, and tell the status now and then."""
        beats = 0
        while True:
            try:
                await self._renew()
                if beats % _STATUS_EVERY_BEATS == 0:
                    await self.send_status()
                beats += 1
            except (ApiFailure, *UNAVAILABLE) as problem:
                log.warning("no heartbeat: %r", problem)
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _renew(self) -> None:
        renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.facts.name, "leaseDurationSeconds": 40, "renewTime": renewed}
        await self._api.apply(_LEASES, {"metadata": {"name": self.facts.name}, "spec": spec})

    async def send_status(self) -> None:
        """Tell the node's status; Ready counts from when its status changed last, whoever changed it."""
        path, facts, now = f"/api/v1/nodes/{self.facts.name}", self.facts, stamp(datetime.now(UTC))
        status, reason = ("False", "NodeShutdown") if self.shutting_down else ("True", "KubeletReady")
        told = await self._api.send("GET", path)
        set_condition(told, "Ready", status, reason, "", now=now)
        resources = {**_CAPACITY, GPU: str(facts.gpus)}
        body = {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": facts.address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.port}},
            "conditions": [{"lastHeartbeatTime": now, **(condition(told, "Ready") or {})}],
        }
        await self._api.send("PATCH", f"{path}/status", {"status": body})
