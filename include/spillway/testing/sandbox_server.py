"""Both sites of the sandbox, without Airflow, for tests: started once a session, made whole again for each test."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.clouds.scalable import IDLE_SINCE
from spillway.connections import connections_from_file
from spillway.errors import SpillwayError
from spillway.model import NodeState
from spillway.runs.local import LEDGER_CONNECTION, local_services
from spillway.runs.services import Services
from spillway.sandbox import drills, lifecycle
from spillway.sandbox.configuration import NAMESPACE
from spillway.sandbox.machines.fleet import Fleet, change_fleet, first_fleet, fleet_file, read_fleet
from spillway.sandbox.settings import SandboxSettings, SiteSettings, sandbox_settings
from spillway.sandbox.supervisor import read_status
from spillway.testing import processes
from spillway.testing.ledger_files import new_ledger
from spillway.testing.polling import eventually
from spillway.testing.ports import SANDBOX_PORTS, free_port_block

PORTS = 300
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

    def secrets(self, site: str) -> frozenset[str]:
        """The names of the Secrets in the site's namespace."""
        return frozenset(found.metadata.name for found in self._core(site).list_namespaced_secret(NAMESPACE).items)

    def objects(self, site: str) -> dict[str, Any]:
        """Every object of the site's namespace as its API tells it, and of the nodes what nobody but people changes."""
        from kubernetes.client import BatchV1Api

        core = self._core(site)
        lists = {
            kind: getattr(core, f"list_namespaced_{kind}")
            for kind in ("pod", "service", "secret", "config_map", "event")
        } | {"job": BatchV1Api(core.api_client).list_namespaced_job}
        found = {kind: _items(look(NAMESPACE, _preload_content=False)) for kind, look in lists.items()}
        nodes = _items(core.list_node(_preload_content=False))
        return found | {
            "node": [(node["metadata"]["name"], node["metadata"]["labels"], node["spec"]) for node in nodes]
        }

    def _events(self, site: str) -> Any:
        return self._core(site).list_namespaced_event(NAMESPACE).items

    def _core(self, site: str) -> Any:
        from kubernetes.client import CoreV1Api
        from kubernetes.config import new_client_from_config_dict

        config = connections_from_file(self.connections)[f"{site}_kubernetes"].extra["kube_config"]
        return CoreV1Api(new_client_from_config_dict(json.loads(config)))

    def _process(self, name: str) -> dict[str, Any]:
        status = read_status(self.sandbox.state)
        assert status is not None, "the sandbox's supervisor has ended"
        return status[name]

    def connection(self, conn_id: str, **changes: Any) -> None:
        """Change a Connection for whoever opens it from now on."""
        written = json.loads(self.connections.read_text())
        written[conn_id] |= changes
        self.connections.write_text(json.dumps(written))


def _items(answer: Any) -> list[Any]:
    return list(json.loads(answer.data)["items"])


@pytest.fixture(scope="session")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxSettings]:
    """Two sites with two GPU nodes each; what a test takes away from them is given back before the next one."""
    settings = free_settings(tmp_path_factory.mktemp("sandbox"))
    said: list[str] = []
    try:
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
    ledger_url = new_ledger(tmp_path / "ledger.db")
    connections = json.loads(sandbox.connections.read_text())
    connections[LEDGER_CONNECTION]["extra"] = json.dumps({"url": ledger_url})
    (tmp_path / "connections.json").write_text(json.dumps(connections))
    return Installation(sandbox=sandbox, config=config, connections=tmp_path / "connections.json")


@pytest.fixture
def services(installation: Installation) -> Services:
    """The services of this test's installation."""
    return installation.services()


def free_settings(state: Path) -> SandboxSettings:
    """Settings with ports that nobody listens on and no other test is given; their supervisor ends with the tests."""
    processes.remove_at_our_end(state / "supervisor.pid")
    wanted = os.environ.get("SPILLWAY_SANDBOX_PORT")
    return sandbox_settings(state, int(wanted) if wanted else free_port_block(PORTS, SANDBOX_PORTS))


def _make_whole(sandbox: SandboxSettings, services: Services) -> None:
    """Return when every process and node is back, none is left that a test ordered, and no pod of an earlier test."""
    for site in sandbox.sites:
        if site.machines_port is not None:
            _order_first_machines(sandbox, site)
    eventually(partial(_all_ready, sandbox), seconds=PATIENCE_SECONDS, pause=0.2)
    for site in sandbox.sites:
        wanted = {node.name for node in site.nodes}
        eventually(partial(_usable_nodes, services, site.name), wanted.issubset, seconds=PATIENCE_SECONDS, pause=0.2)
        eventually(partial(_without_pods, sandbox, site.name), seconds=PATIENCE_SECONDS, pause=0.2)
        eventually(partial(_answers, services, site.name), seconds=PATIENCE_SECONDS, pause=0.2)


def _order_first_machines(sandbox: SandboxSettings, site: SiteSettings) -> None:
    """Have the site's provider know the machines that the site began with, and no others."""
    file = fleet_file(sandbox.state, site)
    first = first_fleet(site, datetime.now(UTC))
    names = [machine.name for machine in first.machines]

    def restored(fleet: Fleet) -> Fleet:
        others = tuple(machine for machine in fleet.machines if machine.name not in names)
        return replace(first, last=fleet.last, leaving=others)

    if [machine.name for machine in read_fleet(file).machines] != names:
        eventually(lambda: not read_fleet(file).leaving, seconds=PATIENCE_SECONDS, pause=0.2)
        change_fleet(file, restored)
        eventually(lambda: not read_fleet(file).leaving, seconds=PATIENCE_SECONDS, pause=0.2)


def _all_ready(sandbox: SandboxSettings) -> bool:
    return all(entry["state"] == "ready" for entry in (read_status(sandbox.state) or {}).values())


def _usable_nodes(services: Services, site: str) -> set[str]:
    try:
        nodes: tuple[NodeState, ...] = services.site(site).client.describe().nodes
    except SpillwayError:
        return set()
    return {node.name for node in nodes if node.ready and node.schedulable}


def _without_pods(sandbox: SandboxSettings, site: str) -> bool:
    """Whether no pod of whichever installation is left; those that are there are asked to go.

    Nor does a node keep the mark of since when it idles: to this test it has not.
    """
    from kubernetes.client import BatchV1Api, CoreV1Api
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import new_client_from_config
    from urllib3.exceptions import HTTPError

    try:
        client = new_client_from_config(str(sandbox.state / site / "kubeconfig.json"))
        batch, core = BatchV1Api(client), CoreV1Api(client)
        for job in batch.list_namespaced_job(NAMESPACE).items:
            batch.delete_namespaced_job(job.metadata.name, NAMESPACE, propagation_policy="Background")
        left = core.list_namespaced_pod(NAMESPACE).items
        for pod in left:
            core.delete_namespaced_pod(pod.metadata.name, NAMESPACE, grace_period_seconds=1)
        for node in core.list_node().items:
            if IDLE_SINCE in (node.metadata.annotations or {}):
                core.patch_node(node.metadata.name, {"metadata": {"annotations": {IDLE_SINCE: None}}})
    except (ApiException, HTTPError, OSError):
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
