"""A Kubernetes cluster for tests: the sandbox's API server with node agents, as pytest fixtures."""

from __future__ import annotations

import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.sandbox.agent.process import drill, node_agent_process
from spillway.sandbox.certificates import Certificates, issue
from spillway.sandbox.kube.process import api_server_process, kubeconfig
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.settings import NodeSettings
from spillway.testing.kube_space import Image, Space
from spillway.testing.ports import free_port
from spillway.testing.processes import start, stop, wait_ready
from spillway.testing.registry_server import RegistryServer
from spillway.testing.runnable_image import ImageSource

GPU_MODEL = "NVIDIA-A100-SXM4-80GB"
GPUS_PER_NODE = 2
NODE_LOST_AFTER = timedelta(seconds=4)
POD_EVICTION_AFTER = timedelta(seconds=1)
_spares = count(1)


@dataclass(kw_only=True)
class Server:
    """One process of the cluster that a test may kill and start again; what it keeps on disk stays."""

    spec: ProcessSpec
    log: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.process = start(self.spec, self.log)
        wait_ready(self.spec, self.process, self.log)

    def kill(self) -> None:
        """SIGKILL to this process alone, as a crash would end it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it and its group; nothing happens where it does not run."""
        if self.process is not None and self.process.poll() is None:
            stop(self.process)


@dataclass(kw_only=True)
class KubeCluster:
    """A running cluster: ``kubeconfig`` is the document, ``kubeconfig_file`` the same on disk."""

    name: str
    directory: Path
    certificates: Certificates
    token: str = field(repr=False)
    api: Server
    kubeconfig: dict[str, Any] = field(repr=False)
    kubeconfig_file: Path
    agents: dict[str, Server] = field(default_factory=dict)

    def client(self) -> Any:
        """A new official ``kubernetes.client.ApiClient``."""
        from kubernetes import config

        return config.new_client_from_config_dict(self.kubeconfig)

    def add_agent(self, node: str, *, gpus: int = GPUS_PER_NODE, masks: tuple[Path, ...] = ()) -> Server:
        """Start a node agent and wait until its node is ready."""
        port = free_port()
        root = self.directory / node
        spec = node_agent_process(
            NodeSettings(name=node, pool="a100", gpus=gpus, gpu_model=GPU_MODEL, port=port),
            kubeconfig=self.kubeconfig_file,
            root=root,
            certificates=self.certificates,
            masks=masks,
        )
        agent = self.agents[node] = Server(spec=spec, log=self.directory / f"{node}.log", port=port)
        agent.start()
        return agent

    def remove_agent(self, node: str) -> None:
        """End the agent and delete its node, if it is still there."""
        from kubernetes import client

        self.agents.pop(node).stop()
        api_client = self.client()
        api = client.CoreV1Api(api_client)
        if node in {found.metadata.name for found in api.list_node().items}:
            api.delete_node(node)
        api_client.close()

    def drill(self, node: str, path: str) -> list[str]:
        """Have a node agent do ``/evict/NAMESPACE/POD`` or ``/shutdown``; gives the pods that it ended."""
        return drill(self.agents[node].port, path, self.certificates)

    def stop(self) -> None:
        """End every process."""
        for server in (*self.agents.values(), self.api):
            server.stop()


def start_cluster(name: str, directory: Path) -> KubeCluster:
    """A cluster without nodes, ready to be asked."""
    directory.mkdir(parents=True, exist_ok=True)
    certificates = issue(directory / "pki")
    port = free_port()
    token, token_file = secrets.token_urlsafe(16), directory / "tokens"
    token_file.write_text(f"{token},admin\n")
    spec = api_server_process(
        name=name,
        port=port,
        state_directory=directory / "api",
        certificates=certificates,
        token_file=token_file,
        node_lost_after=NODE_LOST_AFTER,
        pod_eviction_after=POD_EVICTION_AFTER,
    )
    document = kubeconfig(name=name, server=f"https://127.0.0.1:{port}", ca_file=certificates.ca_file, token=token)
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    cluster = KubeCluster(
        name=name,
        directory=directory,
        certificates=certificates,
        token=token,
        api=Server(spec=spec, log=directory / "api.log", port=port),
        kubeconfig=document,
        kubeconfig_file=file,
    )
    cluster.api.start()
    return cluster


@pytest.fixture(scope="session")
def kube_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A cluster with the nodes ``node-1`` and ``node-2`` of two GPUs each; leave it as you found it."""
    cluster = start_cluster("test", tmp_path_factory.mktemp("kube"))
    try:
        for node in ("node-1", "node-2"):
            cluster.add_agent(node)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def kube_images(registries: Mapping[str, RegistryServer]) -> ImageSource:
    """Puts images where the nodes of ``kube_api`` can pull them."""
    return ImageSource(server=registries["onprem"])


@pytest.fixture(scope="session")
def _plain_image(kube_images: ImageSource) -> Image:
    name = kube_images.put("plain", {"opt/plain/file": b"plain\n"})
    return Image(name=name, docker_config=kube_images.docker_config)


@pytest.fixture
def kube_space(kube_api: KubeCluster, _plain_image: Image) -> Iterator[Space]:
    """A namespace of this test alone on ``kube_api``, with an image of one file and the secret to pull it."""
    api_client = kube_api.client()
    space = Space(api_client, _plain_image)
    space.open()
    yield space
    space.close()
    api_client.close()


@pytest.fixture
def spare_node(kube_api: KubeCluster) -> Iterator[str]:
    """The name of a node of this test alone, to be destroyed."""
    node = f"spare-{next(_spares)}"
    kube_api.add_agent(node)
    yield node
    kube_api.remove_agent(node)
