"""Servers that answer what a test writes down, and a real API server on which the test plays the node agent."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.clouds import node_pools
from spillway.clouds.kubernetes import KubernetesCluster, client_from_kubeconfig
from spillway.connections import ConnectionSpec
from spillway.model import Cluster, ScaledBy
from spillway.runs.scalers import open_scaler
from spillway.sandbox.certificates import issue
from spillway.sandbox.kube.process import api_server_process, kubeconfig
from spillway.testing.builders import node_pool, onprem_cluster
from spillway.testing.node_pool_contract import GPUS, MOST, POOL
from spillway.testing.node_pool_world import Machines, PoolWorld
from spillway.testing.ports import free_port
from spillway.testing.processes import running
from spillway.testing.scripted_api import Answer, ScriptedApi, scripted_api

Script = Callable[..., ScriptedApi]
Json = dict[str, Any]

TOKEN = "test-token"
READY_SINCE = "2026-11-30T12:00:00Z"


@pytest.fixture
def script() -> Iterator[Script]:
    """Starts a server with the given answers; all are stopped after the test."""
    with ExitStack() as servers:

        def start(*answers: Answer) -> ScriptedApi:
            return servers.enter_context(scripted_api(*answers))

        yield start


@dataclass
class ControlPlane:
    """A running API server without nodes. A test adds nodes and reports what their agents would."""

    url: str
    ca_file: Path
    namespaces: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    events: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    nodes: list[str] = field(default_factory=list)

    def client(self, token: str = TOKEN) -> Any:
        return client_from_kubeconfig(kubeconfig(name="c", server=self.url, ca_file=self.ca_file, token=token))

    def cluster(self, **fields: Any) -> Cluster:
        """A declared cluster with a namespace of its own; its nodes are those labelled with that namespace's name."""
        namespace = f"training-{next(self.namespaces)}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        pool = node_pool(node_selector={"owner": namespace}, gpus_per_node=4)
        return onprem_cluster(namespace=namespace, pools=(pool,), **fields)

    def open(self, cluster: Cluster, *, token: str = TOKEN) -> KubernetesCluster:
        return KubernetesCluster(cluster=cluster, api_client=self.client(token))

    def add_node(self, cluster: Cluster, name: str, **spec: Any) -> str:
        """A ready node of the cluster's pool; ``spec`` as in its manifest."""
        full = f"{name}-{cluster.namespace}"
        self.call(
            "POST", "/api/v1/nodes", {"metadata": {"name": full, "labels": {"owner": cluster.namespace}}, "spec": spec}
        )
        self.nodes.append(full)
        self.report_node(full, ready=True)
        return full

    def report_node(self, name: str, *, ready: bool) -> None:
        resources = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "4"}
        condition = {"type": "Ready", "status": str(ready), "reason": "x", "lastTransitionTime": READY_SINCE}
        status = {"capacity": resources, "allocatable": resources, "conditions": [condition]}
        self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})

    def remove_node(self, name: str) -> None:
        self.call("DELETE", f"/api/v1/nodes/{name}")
        self.nodes.remove(name)

    def create_pod(self, namespace: str, name: str, **spec: Any) -> Json:
        manifest = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
        return self.call("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)

    def report_pod(
        self, cluster: Cluster, name: str, phase: str, *, container: Json | None = None, **status: Any
    ) -> None:
        """What the node's agent says of a pod; ``container`` is the state of the trainer."""
        if container is not None:
            entry = {
                "name": "trainer",
                "image": "i",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": container,
            }
            status["containerStatuses"] = [entry]
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/{name}/status"
        self.call("PATCH", path, {"status": {"phase": phase, **status}})

    def add_event(self, cluster: Cluster, pod: str, reason: str, message: str, *, minute: int = 0) -> None:
        event = {
            "metadata": {"name": f"{pod}.{next(self.events)}", "namespace": cluster.namespace},
            "involvedObject": {"kind": "Pod", "name": pod, "namespace": cluster.namespace},
            "reason": reason,
            "message": message,
            "lastTimestamp": f"2026-11-30T12:{minute:02}:00Z",
        }
        self.call("POST", f"/api/v1/namespaces/{cluster.namespace}/events", event)

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        answer = self.client().call_api(
            path,
            method,
            body=body,
            header_params={"Content-Type": kind, "Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
        )
        return dict(json.loads(answer.data))


@pytest.fixture(scope="session")
def api_server() -> Iterator[ControlPlane]:
    """The API server that all tests of this folder share."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tokens").write_text(f"{TOKEN},admin\n")
        certificates = issue(root / "pki")
        port = free_port()
        spec = api_server_process(
            name="test",
            port=port,
            state_directory=root / "state",
            certificates=certificates,
            token_file=root / "tokens",
            node_lost_after=timedelta(hours=1),
            pod_eviction_after=timedelta(hours=1),
        )
        with running(spec, root / "log"):
            yield ControlPlane(url=f"https://127.0.0.1:{port}", ca_file=certificates.ca_file)


@pytest.fixture
def control_plane(api_server: ControlPlane) -> Iterator[ControlPlane]:
    """The shared API server; the nodes that the test added go with it."""
    yield api_server
    for name in list(api_server.nodes):
        api_server.remove_node(name)


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Cluster:
    """A declared cluster of the shared API server, with a namespace of its own."""
    return control_plane.cluster()


@pytest.fixture
def client(control_plane: ControlPlane, cluster: Cluster) -> KubernetesCluster:
    """Its client."""
    return control_plane.open(cluster)


@pytest.fixture
def pool_world(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., PoolWorld]]:
    """Makes the pool of the contract, without nodes, for what scales it, its provider's machines and Connections.

    Its scheduler knows at once what is cordoned, and is not waited for.
    """
    monkeypatch.setattr(node_pools, "SETTLE_SECONDS", 0.0)
    worlds = []

    def make(scaled_by: ScaledBy, machines: Callable[[PoolWorld], Machines], *connections: ConnectionSpec) -> PoolWorld:
        declared = control_plane.cluster()
        (pool,) = declared.pools
        pool = replace(pool, name=POOL, gpus_per_node=GPUS, max_nodes=MOST, scaled_by=scaled_by)
        cluster = replace(declared, name="cloud", pools=(pool,))
        client = control_plane.open(cluster)
        scaler = open_scaler(cluster, client, {known.conn_id: known for known in connections}.__getitem__)
        assert scaler is not None
        world = PoolWorld(api=client.api, cluster=cluster, scaler=scaler, machines=machines)
        worlds.append(world)
        return world

    yield make
    for world in worlds:
        world.clear()
