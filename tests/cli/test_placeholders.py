"""Placeholder pods on the sandbox, whose provider of machines a small autoscaler asks: nodes boot, a job displaces."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml

from spillway.clouds.base import PLACEHOLDER_LABEL, NodePoolScaler
from spillway.clouds.sandbox_machines import SandboxMachines
from spillway.connections import connections_from_file
from spillway.model import PoolUse
from spillway.sandbox import drills
from spillway.sandbox.configuration import NAMESPACE
from spillway.sandbox.sites import kubernetes_api
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture
def scaler(installation: Installation) -> NodePoolScaler:
    """The scaler of the cloud's pool, which is declared to be held by placeholders."""
    file = installation.config / "clusters.yaml"
    declared = yaml.safe_load(file.read_text())
    (pool,) = declared["clusters"][1]["pools"]
    pool["scaled_by"] = {"provider": "placeholders", "image": "127.0.0.1:1/pause:1"}
    file.write_text(yaml.safe_dump(declared))
    scaler = installation.services().scaler("cloud")
    assert scaler is not None
    drills.misbehave(installation.sandbox, boot=timedelta(seconds=1))
    return scaler


def machines(installation: Installation) -> SandboxMachines:
    known = connections_from_file(installation.connections)["cloud_machines"]
    address = {"host": str(known.host), "port": int(known.port or 0), "token": str(known.password)}
    return SandboxMachines(pool="cloud/gpu", group="gpu", **address)


def pods(installation: Installation, **query: str) -> list[Any]:
    return kubernetes_api(installation.sandbox, installation.sandbox.sites[1]).items(PODS, query)  # type: ignore[return-value]


def held(installation: Installation) -> list[str | None]:
    """The nodes that placeholders hold, None for one that waits."""
    return [pod["spec"].get("nodeName") for pod in pods(installation, labelSelector=PLACEHOLDER_LABEL)]


def test_nodes_boot_for_placeholders_and_a_job_displaces_one_at_once(
    scaler: NodePoolScaler, installation: Installation
) -> None:
    scaler.set_target("gpu", 3)
    eventually(lambda: held(installation), lambda seen: len(seen) == 3 and seen.count(None) == 1)
    machines(installation).resize(2 + held(installation).count(None), kept=(), leaving=())  # as an autoscaler does
    three = eventually(lambda: held(installation), lambda seen: None not in seen and len(seen) == 3)

    api = kubernetes_api(installation.sandbox, installation.sandbox.sites[1])
    container = {"name": "c", "image": "127.0.0.1:1/job:1", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    api.json(
        "POST", PODS, body={"metadata": {"name": "job"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    )
    (job,) = eventually(
        lambda: [pod for pod in pods(installation) if pod["metadata"]["name"] == "job" and "nodeName" in pod["spec"]]
    )
    taken = job["spec"]["nodeName"]
    assert sorted(map(str, held(installation))) == sorted(str(node) for node in three if node != taken)
    seen = scaler.pools()["gpu"]
    assert isinstance(seen, PoolUse)
    assert (seen.wanted, {node.name: node.pods for node in seen.nodes}[taken]) == (3, 1)
