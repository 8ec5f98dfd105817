"""Jobs of several nodes: built, launched, seen and stopped as one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.base import ATTEMPT_LABEL
from spillway.clouds.gang import gang_of, gang_state
from spillway.clouds.kubernetes import KubernetesCluster
from spillway.clouds.pod import build_pod
from spillway.errors import LaunchRefused
from spillway.model import Cluster, PodPhase, PodState, PodUse
from spillway.testing.builders import attempt, job_spec
from spillway.testing.polling import eventually

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
IMAGE = "registry.onprem:5000/train/digits@sha256:" + "a" * 64
NAME = "digits-7f3a-1"


def built(cluster: Cluster, *, nodes: int = 2) -> dict[str, Any]:
    of = attempt(job=job_spec(nodes=nodes))
    return dict(
        build_pod(attempt=of, cluster=cluster, image=IMAGE, environment={"A": "1"}, store_secret=None, pull_secret=None)
    )


@pytest.fixture
def cluster(control_plane: Any) -> Cluster:
    declared: Cluster = control_plane.cluster()
    return declared


@pytest.fixture
def client(control_plane: Any, cluster: Cluster) -> KubernetesCluster:
    opened: KubernetesCluster = control_plane.open(cluster)
    return opened


def test_a_gang_is_a_job_of_the_very_pod_that_one_node_would_run(cluster: Cluster) -> None:
    pod, job = built(cluster, nodes=1), built(cluster, nodes=2)
    assert job == gang_of(pod, 2)
    assert (job["kind"], job["metadata"]) == ("Job", pod["metadata"])
    template = job["spec"].pop("template")
    assert job["spec"] == {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 0}
    (trainer,), (alone,) = template["spec"]["containers"], pod["spec"]["containers"]
    assert trainer["env"] == [
        {"name": "A", "value": "1"},
        {"name": "SPILLWAY_COORDINATOR", "value": f"{NAME}-0.{NAME}"},
        {"name": "SPILLWAY_NODES", "value": "2"},
    ]
    assert {**trainer, "env": alone["env"]} == alone
    assert template["metadata"]["labels"] == pod["metadata"]["labels"]
    assert template["spec"] == {**pod["spec"], "subdomain": NAME, "containers": [trainer]}


RUNNING = PodState(name="p", phase=PodPhase.RUNNING, node_exists=True, node_ready=True)
FAILED = replace(RUNNING, phase=PodPhase.FAILED, exit_code=1)
DONE = replace(RUNNING, phase=PodPhase.SUCCEEDED, exit_code=0)

DECISIONS = {
    "all run": ([RUNNING, RUNNING], RUNNING, True),
    "one waits": ([RUNNING, replace(RUNNING, phase=PodPhase.PENDING)], replace(RUNNING, phase=PodPhase.PENDING), True),
    "one is done before the others": ([DONE, RUNNING], RUNNING, False),
    "all are done": ([DONE, DONE], DONE, False),
    "one failed": ([RUNNING, FAILED], FAILED, True),
    "the platform before the errors that follow": (
        [FAILED, replace(RUNNING, disruption="EvictionByEvictionAPI")],
        replace(RUNNING, disruption="EvictionByEvictionAPI"),
        False,
    ),
    "a silent node before the errors that follow": (
        [FAILED, replace(RUNNING, node_ready=False)],
        replace(RUNNING, node_ready=False),
        False,
    ),
    "the first failure is the cause": (
        [
            replace(FAILED, exit_code=2, finished_at=NOON + timedelta(seconds=1)),
            replace(FAILED, exit_code=3, finished_at=NOON),
        ],
        replace(FAILED, exit_code=3, finished_at=NOON),
        False,
    ),
    "a failure before the deletions that follow": (
        [replace(RUNNING, deleted_at=NOON), replace(FAILED, finished_at=NOON)],
        replace(FAILED, finished_at=NOON),
        True,
    ),
    "deleted by a person": (
        [RUNNING, replace(RUNNING, deleted_at=NOON)],
        replace(RUNNING, deleted_at=NOON),
        True,
    ),
}


@pytest.mark.parametrize(("pods", "decisive", "others_running"), DECISIONS.values(), ids=DECISIONS)
def test_the_state_of_a_gang_is_that_of_the_pod_that_decides(
    pods: list[PodState], decisive: PodState, others_running: bool
) -> None:
    expected = replace(decisive, name=NAME, uid="job-uid", others_running=others_running)
    assert gang_state(NAME, "job-uid", pods) == expected
    assert gang_state(NAME, "job-uid", pods[::-1]) == expected


def pods_of(control_plane: Any, cluster: Cluster) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods?labelSelector={ATTEMPT_LABEL}%3D{NAME}"
    found: list[dict[str, Any]] = control_plane.call("GET", path)["items"]
    return sorted(found, key=lambda pod: pod["metadata"]["name"])


def test_a_gang_is_launched_seen_and_stopped_as_one(
    control_plane: Any, cluster: Cluster, client: KubernetesCluster
) -> None:
    nodes = [control_plane.add_node(cluster, name) for name in ("n1", "n2")]
    first, second = client.launch(built(cluster)), client.launch(built(cluster))
    assert (first.uid, first.name) == (second.uid, NAME)
    pods = eventually(
        lambda: pods_of(control_plane, cluster), lambda found: sum("nodeName" in pod["spec"] for pod in found) == 2
    )
    assert all(pod["spec"]["nodeName"] in nodes for pod in pods)
    use = [pod for pod in client.describe().pods if pod.namespace == cluster.namespace]
    assert sorted(use, key=lambda pod: pod.name) == [
        PodUse(
            name=pod["metadata"]["name"],
            namespace=cluster.namespace,
            gpus=1,
            attempt=NAME,
            node=pod["spec"]["nodeName"],
        )
        for pod in pods
    ]
    service = control_plane.call("GET", f"/api/v1/namespaces/{cluster.namespace}/services/{NAME}")
    assert service["spec"]["selector"] == {ATTEMPT_LABEL: NAME}
    assert service["metadata"]["ownerReferences"][0]["uid"] == first.uid

    for pod in pods:
        control_plane.report_pod(cluster, pod["metadata"]["name"], "Running", container={"running": {}})
    running = client.state(NAME)
    assert (running.phase, running.uid, running.attempt, running.others_running) == (
        PodPhase.RUNNING,
        first.uid,
        NAME,
        True,
    )
    assert client.owned() == (running,)

    client.stop(NAME, grace=timedelta(seconds=30))
    stopping = eventually(lambda: client.state(NAME), lambda pod: pod.deleted_at is not None)
    assert (stopping.phase, stopping.uid) == (PodPhase.RUNNING, first.uid)
    for pod in pods:
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0"
        control_plane.call("DELETE", path)
    assert client.state(NAME).phase is PodPhase.GONE
    assert client.state(NAME).node in nodes
    client.stop(NAME, grace=timedelta(seconds=30))


def test_one_pod_that_fails_ends_the_gang(control_plane: Any, cluster: Cluster, client: KubernetesCluster) -> None:
    control_plane.add_node(cluster, "n1")
    client.launch(built(cluster))
    pods = eventually(
        lambda: pods_of(control_plane, cluster), lambda found: sum("nodeName" in pod["spec"] for pod in found) == 2
    )
    failing, other = (pod["metadata"]["name"] for pod in pods)
    control_plane.report_pod(cluster, other, "Running", container={"running": {}})
    control_plane.report_pod(cluster, failing, "Failed", container={"terminated": {"exitCode": 9, "reason": "Error"}})
    failed = client.state(NAME)
    assert (failed.phase, failed.exit_code, failed.others_running) == (PodPhase.FAILED, 9, True)
    eventually(
        lambda: {pod["metadata"]["name"]: pod["metadata"] for pod in pods_of(control_plane, cluster)},
        lambda found: "deletionTimestamp" in found[other],
    )


def test_the_job_of_somebody_else_is_left_alone(
    control_plane: Any, cluster: Cluster, client: KubernetesCluster
) -> None:
    foreign = built(cluster)
    foreign["metadata"] = {"name": NAME}
    control_plane.call("POST", f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs", foreign)
    with pytest.raises(LaunchRefused, match=f"already has a Job '{NAME}'"):
        client.launch(built(cluster))
