"""A training whose on-premises site has a real Kubernetes control plane: API, scheduler and controllers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from kubernetes import client
from kubernetes.config import new_client_from_config_dict

from spillway.model import JobSpec, Outcome
from spillway.sandbox.configuration import NAMESPACE
from spillway.testing.carried_run import Carried
from spillway.testing.real_cluster import RealCluster
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


@pytest.fixture
def installation(installation: Installation, real_kube: RealCluster) -> Installation:
    """The sandbox with the real control plane as its on-premises cluster."""
    api = client.CoreV1Api(new_client_from_config_dict(real_kube.kubeconfig))
    if NAMESPACE not in {found.metadata.name for found in api.list_namespace().items}:
        api.create_namespace({"metadata": {"name": NAMESPACE}})
    extra = {"kube_config": json.dumps(real_kube.kubeconfig), "namespace": NAMESPACE}
    installation.connection("onprem_kubernetes", extra=json.dumps(extra))
    return installation


@pytest.mark.real_k8s
@pytest.mark.timeout(900)
def test_a_training_survives_an_eviction_by_a_real_control_plane(
    installation: Installation, real_kube: RealCluster, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=60, every=3, pace=0.2))
    first = run.running(1, committed=2)
    api = client.CoreV1Api(new_client_from_config_dict(real_kube.kubeconfig))
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
