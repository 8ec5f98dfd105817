"""Both sites of the sandbox, without Airflow, for tests: started once a session, made whole again for each test."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
import yaml

from spillway.connections import connections_from_file
from spillway.errors import SandboxError, SpillwayError
from spillway.ledger import upgrade
from spillway.model import NodeState
from spillway.runs.local import LEDGER_CONNECTION, local_services
from spillway.runs.services import Services
from spillway.sandbox import drills, lifecycle
from spillway.sandbox.configuration import NAMESPACE
from spillway.sandbox.settings import SandboxSettings, check_ports, sandbox_settings
from spillway.sandbox.supervisor import read_status
from spillway.testing.polling import eventually

PATIENCE_SECONDS = 120.0
RUN_POLICY = {"cool_down": "60s", "lease": "60s", "startup_limit": "2m", "node_margin": "1s"}
"""Tests lose nodes on purpose and wait for what follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A configuration and Connections of its own for one test; another process opens the same from these two paths."""

    sandbox: SandboxSettings
    config: Path
    connections: Path

    def services(self) -> Services:
        """New clients and a new look at the ledger, as a process has them that starts now."""
        return local_services(self.config, self.connections)

    @contextmanager
    def taken(self, *processes: str) -> Iterator[None]:
        """The sandbox without these processes for the length of the block."""
        held = self.sandbox.state / "held"
        held.mkdir(exist_ok=True)
        for name in processes:
            (held / name).touch()
        try:
            eventually(lambda: not any(self._process(name)["pid"] for name in processes))
            yield
        finally:
            for name in processes:
                (held / name).unlink(missing_ok=True)
            eventually(lambda: all(self._process(name)["state"] == "ready" for name in processes))

    @contextmanager
    def frozen(self, process: str) -> Iterator[None]:
        """A process that neither works nor ends for the length of the block."""
        pid = int(self._process(process)["pid"])
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def pods_ever(self, run: str) -> tuple[tuple[str, str], ...]:
        """(site, name) of every pod that the run ever had, by the schedulers' events; twice where there were two."""
        seen = set()
        for site in self.sandbox.sites:
            for event in self._events(site.name):
                pod = event.involved_object
                if event.reason == "Scheduled" and pod.name.startswith(f"{run}-"):
                    seen.add((site.name, pod.name, pod.uid))
        return tuple((site, name) for site, name, _ in sorted(seen))

    def _events(self, site: str) -> Any:
        from kubernetes.client import CoreV1Api
        from kubernetes.config import new_client_from_config_dict

        config = connections_from_file(self.connections)[f"{site}_kubernetes"].extra["kube_config"]
        return CoreV1Api(new_client_from_config_dict(json.loads(config))).list_namespaced_event(NAMESPACE).items

    def _process(self, name: str) -> dict[str, Any]:
        status = read_status(self.sandbox.state)
        assert status is not None, "the sandbox's supervisor has ended"
        return status[name]

    def connection(self, conn_id: str, **changes: Any) -> None:
        """Change a Connection for whoever opens it from now on."""
        written = json.loads(self.connections.read_text())
        written[conn_id] |= changes
        self.connections.write_text(json.dumps(written))


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxSettings]:
    """Two sites with two GPU nodes each; what a test takes away from them is given back before the next one."""
    settings = _free_settings(tmp_path_factory.mktemp("sandbox"))
    said: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # the supervisor is meant to outlive its Popen
            lifecycle.up(settings, said.append, with_airflow=False)
        yield settings
    finally:
        lifecycle.down(settings, said.append)


@pytest.fixture(scope="session")
def sandbox_services(sandbox: SandboxSettings) -> Services:
    """The sandbox's own services, for looking at it between tests."""
    return local_services(sandbox.config, sandbox.connections)


@pytest.fixture
def installation(sandbox: SandboxSettings, sandbox_services: Services, tmp_path: Path) -> Installation:
    """The whole sandbox, without pods, and an empty ledger."""
    drills.recover(sandbox)
    _make_whole(sandbox, sandbox_services)
    config = tmp_path / "config"
    shutil.copytree(sandbox.config, config)
    policy = yaml.safe_load((config / "policy.yaml").read_text())
    (config / "policy.yaml").write_text(yaml.safe_dump(policy | {"runs": RUN_POLICY}))
    ledger_url = f"sqlite:///{tmp_path / 'ledger.db'}"
    upgrade(ledger_url)
    connections = json.loads(sandbox.connections.read_text())
    connections[LEDGER_CONNECTION]["extra"] = json.dumps({"url": ledger_url})
    (tmp_path / "connections.json").write_text(json.dumps(connections))
    return Installation(sandbox=sandbox, config=config, connections=tmp_path / "connections.json")


@pytest.fixture
def services(installation: Installation) -> Services:
    """The services of this test's installation."""
    return installation.services()


def _free_settings(state: Path) -> SandboxSettings:
    """Settings whose ports are free now, below those that outgoing connections are given."""
    wanted = os.environ.get("SPILLWAY_SANDBOX_PORT")
    first_ports = [int(wanted)] if wanted else SystemRandom().sample(range(18000, 32400, 300), 20)
    for first_port in first_ports:
        settings = sandbox_settings(state, first_port)
        with contextlib.suppress(SandboxError):
            check_ports(settings, with_airflow=False)
            return settings
    raise AssertionError(f"no 300 free ports from any of {first_ports}")


def _make_whole(sandbox: SandboxSettings, services: Services) -> None:
    """Return when every process and node is back and no pod of an earlier test is left."""
    for site in sandbox.sites:
        wanted = {node.name for node in site.nodes}
        eventually(partial(_usable_nodes, services, site.name), wanted.issubset, seconds=PATIENCE_SECONDS, pause=0.2)
        eventually(partial(_without_pods, services, site.name), seconds=PATIENCE_SECONDS, pause=0.2)
        eventually(partial(_answers, services, site.name), seconds=PATIENCE_SECONDS, pause=0.2)


def _usable_nodes(services: Services, site: str) -> set[str]:
    try:
        nodes: tuple[NodeState, ...] = services.site(site).client.describe().nodes
    except SpillwayError:
        return set()
    return {node.name for node in nodes if node.ready and node.schedulable}


def _without_pods(services: Services, site: str) -> bool:
    """Whether none is left; those that are there are asked to go."""
    client = services.site(site).client
    try:
        left = client.owned()
        for pod in left:
            client.stop(pod.name, grace=timedelta(seconds=1))
    except SpillwayError:
        return False
    return not left


def _answers(services: Services, site: str) -> bool:
    """Whether the store and the registry of the site are back."""
    found = services.site(site)
    try:
        found.checkpoints.head("anything")
        found.registry.tags("train")
    except SpillwayError:
        return False
    return True
