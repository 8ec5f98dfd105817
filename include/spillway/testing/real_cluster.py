"""A real Kubernetes control plane with the sandbox's node agents, for tests."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import CoreV1Api
from kubernetes.config import new_client_from_config_dict

from spillway.sandbox.agent.process import node_agent_process
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.realcluster.build import programs_directory
from spillway.sandbox.realcluster.process import Ports, control_plane
from spillway.sandbox.settings import PROJECT, NodeSettings, cache_directory
from spillway.testing.kube_server import GPU_MODEL, GPUS_PER_NODE, Server
from spillway.testing.polling import eventually
from spillway.testing.ports import free_port

NODES = ("real-1", "real-2")


class RealCluster:
    """The control plane of ``programs`` and two nodes, everything they keep below ``directory``."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self._directory = directory
        api, etcd, peer, controllers, scheduler, *agents = (free_port() for _ in range(5 + len(NODES)))
        ports = Ports(api=api, etcd=etcd, etcd_peer=peer, controller_manager=controllers, scheduler=scheduler)
        self._plane = control_plane(programs, directory, ports)
        self._agent_ports = agents
        self._servers: dict[str, Server] = {}
        self._lost: set[str] = set()

    @property
    def kubeconfig_file(self) -> Path:
        return self._plane.kubeconfig_file

    @property
    def kubeconfig(self) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load(self.kubeconfig_file.read_text())
        return document

    def start(self) -> None:
        """Start everything, each process when those that it needs are ready; return when pods may go to every node."""
        for spec in self._plane.processes:
            self._start(spec.name, spec)
        for node, port in zip(NODES, self._agent_ports, strict=True):
            self._start(
                node,
                node_agent_process(
                    NodeSettings(name=node, pool="a100", gpus=GPUS_PER_NODE, gpu_model=GPU_MODEL, port=port),
                    kubeconfig=self.kubeconfig_file,
                    root=self._directory / node,
                    certificates=self._plane.certificates,
                    masks=(PROJECT,),
                ),
            )
        eventually(self._taints, operator.not_)

    def _start(self, name: str, spec: ProcessSpec) -> None:
        self._servers[name] = Server(spec=spec, log=self._directory / f"{spec.name}.log", port=spec.ports[0])
        self._servers[name].start()

    def lose_node(self, node: str) -> None:
        """Power off a node: its agent and its pods die, nothing says goodbye."""
        self._lost.add(node)
        self._servers[node].kill()

    def give_back(self) -> None:
        """Start the lost nodes again; return when pods may go to them."""
        while self._lost:
            self._servers[self._lost.pop()].start()
        eventually(self._taints, operator.not_)

    def _taints(self) -> list[tuple[str, str]]:
        """(node, taint): the node controller takes away what it set a while after a node has become ready."""
        with new_client_from_config_dict(self.kubeconfig) as api_client:
            nodes = CoreV1Api(api_client).list_node().items
        return [(node.metadata.name, taint.key) for node in nodes for taint in node.spec.taints or ()]

    def stop(self) -> None:
        """End every process, the last started first."""
        for server in reversed(self._servers.values()):
            server.stop()


@pytest.fixture(scope="session")
def real_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """A real control plane with two of the sandbox's node agents; nobody who asked for tests waits for its build."""
    programs = programs_directory(cache_directory())
    if not programs.is_dir():
        pytest.skip("no real control plane is built on this machine; build it: make real-k8s")
    cluster = RealCluster(programs, tmp_path_factory.mktemp("real"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
