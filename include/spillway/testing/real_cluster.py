"""A real Kubernetes control plane with the sandbox's node agents, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.sandbox.agent.process import node_agent_process
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.realcluster.build import build
from spillway.sandbox.realcluster.process import Ports, control_plane
from spillway.sandbox.settings import cache_directory
from spillway.testing.kube_server import GPU_MODEL, GPUS_PER_NODE, Server
from spillway.testing.processes import free_ports

NODES = ("real-1", "real-2")


class RealCluster:
    """Started from programs that were built before, or are built now, which takes many minutes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        api, etcd, peer, controllers, scheduler, *agents = free_ports(5 + len(NODES))
        ports = Ports(api=api, etcd=etcd, etcd_peer=peer, controller_manager=controllers, scheduler=scheduler)
        self._plane = control_plane(build(cache_directory(), print), directory, ports)
        self._agent_ports = agents
        self._servers: list[Server] = []

    @property
    def kubeconfig_file(self) -> Path:
        return self._plane.kubeconfig_file

    @property
    def kubeconfig(self) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load(self.kubeconfig_file.read_text())
        return document

    def start(self) -> None:
        """Start everything, each process when those that it needs are ready."""
        for spec in self._plane.processes:
            self._start(spec)
        for node, port in zip(NODES, self._agent_ports, strict=True):
            self._start(
                node_agent_process(
                    node=node,
                    kubeconfig=self.kubeconfig_file,
                    port=port,
                    root=self._directory / node,
                    certificates=self._plane.certificates,
                    gpus=GPUS_PER_NODE,
                    gpu_model=GPU_MODEL,
                    labels={"spillway.dev/pool": "a100"},
                    masks=(),
                )
            )

    def _start(self, spec: ProcessSpec) -> None:
        server = Server(spec=spec, log=self._directory / f"{spec.name}.log", port=spec.ports[0])
        self._servers.append(server)
        server.start()

    def stop(self) -> None:
        """End every process, the last started first."""
        for server in reversed(self._servers):
            server.stop()


@pytest.fixture(scope="session")
def real_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A real control plane with two of the sandbox's node agents."""
    cluster = RealCluster(tmp_path_factory.mktemp("real"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
