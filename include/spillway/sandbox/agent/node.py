"""The node that the agent stands for: its object, its heartbeat, and the facts its pods are told."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spillway.sandbox.agent.client import STRATEGIC_PATCH, UNAVAILABLE, ApiClient, ApiFailure
from spillway.sandbox.agent.report import persist

log = logging.getLogger(__name__)

GPU = "nvidia.com/gpu"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_STATUS_EVERY_BEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the node offers. ``isolation`` is root, user or plain; ``masks`` are hidden from its containers."""

    name: str
    gpus: int
    gpu_model: str
    cpu: str
    memory: str
    address: str
    port: int
    labels: Mapping[str, str]
    masks: tuple[str, ...]
    root: Path
    isolation: str
    heartbeat_seconds: float


class Node:
    """The node's side of the API: registered once, then kept alive by a lease."""

    def __init__(self, facts: NodeFacts, api: ApiClient) -> None:
        self._facts, self._api = facts, api
        self.shutting_down = False

    @property
    def name(self) -> str:
        return self._facts.name

    @property
    def address(self) -> str:
        return self._facts.address

    @property
    def isolation(self) -> str:
        return self._facts.isolation

    @property
    def masks(self) -> list[str]:
        return list(self._facts.masks)

    @property
    def facts(self) -> dict[str, str]:
        """Answers to the fieldRefs that only the node knows."""
        return {"status.podIP": self.address, "status.hostIP": self.address, "spec.nodeName": self.name}

    def pod_directory(self, uid: str) -> Path:
        return self._facts.root / "pods" / uid

    async def register(self) -> None:
        """Make the node object, or bring its labels up to date; waits for an API server that is away."""
        labels = {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
            "nvidia.com/gpu.product": self._facts.gpu_model,
            **self._facts.labels,
        }
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name, "labels": labels}}

        async def upsert() -> None:
            path = f"/api/v1/nodes/{self.name}"
            if await self._api.find(path) is None:
                await self._api.send("POST", "/api/v1/nodes", body)
            else:
                patch = {"metadata": {"labels": labels}}
                await self._api.send("PATCH", path, patch, content_type=STRATEGIC_PATCH)

        await persist(upsert)
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
            await asyncio.sleep(self._facts.heartbeat_seconds)

    async def _renew(self) -> None:
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": 40,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        lease = await self._api.find(f"{_LEASES}/{self.name}")
        if lease is None:
            body = {"metadata": {"name": self.name, "namespace": "kube-node-lease"}, "spec": spec}
            await self._api.send("POST", _LEASES, body)
        else:
            await self._api.send("PUT", f"{_LEASES}/{self.name}", {**lease, "spec": {**lease["spec"], **spec}})

    async def send_status(self) -> None:
        facts = self._facts
        capacity = {"cpu": facts.cpu, "memory": facts.memory, "pods": "110", GPU: str(facts.gpus)}
        ready = ("False", "NodeShutdown") if self.shutting_down else ("True", "KubeletReady")
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": facts.address},
                {"type": "Hostname", "address": facts.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.port}},
            "conditions": [
                _condition("Ready", *ready),
                _condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                _condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                _condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": _node_info(),
        }
        path = f"/api/v1/nodes/{self.name}/status"
        await self._api.send("PATCH", path, {"status": status}, content_type=STRATEGIC_PATCH)

    async def event(self, pod: Mapping[str, Any], kind: str, reason: str, message: str) -> None:
        """Record an event about a pod; a lost one does no harm."""
        metadata = pod["metadata"]
        body = {
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                **{key: metadata[key] for key in ("name", "namespace", "uid")},
            },
            "type": kind,
            "reason": reason,
            "message": message[:1000],
            "source": {"component": "kubelet", "host": self.name},
            "firstTimestamp": _now(),
            "lastTimestamp": _now(),
            "count": 1,
        }
        try:
            await self._api.send("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", body)
        except (ApiFailure, *UNAVAILABLE) as problem:
            log.warning("an event was lost: %r", problem)


def _condition(kind: str, status: str, reason: str) -> dict[str, str]:
    times = {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
    return {"type": kind, "status": status, "reason": reason, "message": "", **times}


def _node_info() -> dict[str, str]:
    known = {
        "kubeletVersion": "v1.36.0-spillway",
        "osImage": "the host's",
        "kernelVersion": os.uname().release,
        "containerRuntimeVersion": "process://1",
        "architecture": platform.machine(),
        "operatingSystem": "linux",
    }
    return {**known, **dict.fromkeys(("machineID", "systemUUID", "bootID", "kubeProxyVersion"), "")}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
