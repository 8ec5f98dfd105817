"""Trainings whose on-premises site has a real Kubernetes control plane: API, scheduler and controllers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes import client
from kubernetes.config import new_client_from_config_dict

from spillway.model import JobSpec, Outcome
from spillway.sandbox.configuration import NAMESPACE
from spillway.sandbox.demo.proof import check_all
from spillway.sandbox.demo.report import write_report
from spillway.sandbox.demo.story import Story, demo_job
from spillway.testing.carried_run import Carried
from spillway.testing.real_cluster import RealCluster
from spillway.testing.sandbox_server import Installation

pytestmark = [pytest.mark.real_k8s, pytest.mark.timeout(900)]

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


@pytest.fixture
def api(real_kube: RealCluster) -> Iterator[client.CoreV1Api]:
    """The real API; nodes that a test loses are given back."""
    api_client = new_client_from_config_dict(real_kube.kubeconfig)
    yield client.CoreV1Api(api_client)
    real_kube.give_back()
    api_client.close()


@pytest.fixture
def installation(installation: Installation, real_kube: RealCluster, api: client.CoreV1Api) -> Installation:
    """The sandbox with the real control plane as its on-premises cluster."""
    if NAMESPACE not in {found.metadata.name for found in api.list_namespace().items}:
        api.create_namespace({"metadata": {"name": NAMESPACE}})
    extra = {"kube_config": json.dumps(real_kube.kubeconfig), "namespace": NAMESPACE}
    installation.connection("onprem_kubernetes", extra=json.dumps(extra))
    return installation


def test_the_demos_training_survives_the_loss_of_a_node_of_a_real_control_plane(
    installation: Installation, real_kube: RealCluster, api: client.CoreV1Api, tmp_path: Path
) -> None:
    services, said = installation.services(), list[str]()
    story = Story(
        settings=installation.sandbox,
        services=services,
        job=demo_job(services),
        say=said.append,
        broken=None,
        lose_node=real_kube.lose_node,
    )

    story.play()

    report, checks = write_report(story, check_all, tmp_path / "report.json")
    assert (story.failure, [check for check in checks if not check.ok]) == ("", []), "\n".join(said)
    first, second = report["attempts"]
    assert (first["cluster"], first["outcome"]) == ("onprem", Outcome.PREEMPTED)
    assert (second["cluster"], second["outcome"]) == ("cloud", Outcome.SUCCEEDED)
    lost = api.read_node(first["node"])
    assert "node.kubernetes.io/unreachable" in {taint.key for taint in lost.spec.taints}


def test_a_training_survives_an_eviction_by_a_real_control_plane(
    api: client.CoreV1Api, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=60, every=3, pace=0.2))
    first = run.running(1, committed=2)
    api.create_namespaced_pod_eviction(
        first.label, NAMESPACE, {"metadata": {"name": first.label, "namespace": NAMESPACE}}
    )
    assert run.result().outcome is Outcome.SUCCEEDED, run.story
    one, two = run.attempts
    assert (one.candidate.cluster, one.outcome) == ("onprem", Outcome.PREEMPTED)
    assert (two.candidate.cluster, two.outcome, two.last_step) == ("cloud", Outcome.SUCCEEDED, 60)
    assert two.resumed_from_step is not None
    assert two.first_step == two.resumed_from_step + 1
    assert [step for step, _ in run.losses("cloud")] == list(range(1, 61))
