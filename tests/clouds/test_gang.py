"""Jobs of several nodes: built, launched, seen and stopped as one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.base import ATTEMPT_LABEL
from spillway.clouds.facts import moment
from spillway.clouds.gang import gang_of, gang_state, job_state
from spillway.clouds.kubernetes import KubernetesCluster
from spillway.errors import LaunchRefused
from spillway.model import Cluster, PodPhase, PodState, PodUse
from spillway.testing.builders import INSTALLATION
from spillway.testing.manifests import manifest
from spillway.testing.polling import eventually

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NAME = "digits-7f3a-1"


def built(cluster: Cluster, *, nodes: int = 2) -> dict[str, Any]:
    return manifest(cluster, nodes=nodes, environment={"A": "1"})


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


JOB_STATUSES = {
    "before its first pod": ({"startTime": "2026-11-30T10:00:00Z"}, PodPhase.PENDING, None, None),
    "failed": (
        {
            "startTime": "2026-11-30T10:00:00Z",
            "conditions": [
                {"type": "FailureTarget", "status": "True", "lastTransitionTime": "2026-11-30T11:59:00Z"},
                {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-30T12:00:00Z"},
            ],
        },
        PodPhase.FAILED,
        NOON - timedelta(hours=2),
        NOON,
    ),
}


@pytest.mark.parametrize(("status", "phase", "started_at", "finished_at"), JOB_STATUSES.values(), ids=JOB_STATUSES)
def test_a_job_without_pods_tells_when_it_began_and_ended(
    status: dict[str, Any], phase: PodPhase, started_at: datetime | None, finished_at: datetime | None
) -> None:
    metadata = {"name": NAME, "uid": "job-uid", "creationTimestamp": "2026-11-30T09:59:59Z"}
    told = job_state({"metadata": metadata, "status": status}, cluster="onprem")
    assert (told.phase, told.started_at, told.finished_at) == (phase, started_at, finished_at)


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
            cpu_millicores=1000,
            memory_mib=1024,
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
    assert running.installation == INSTALLATION
    assert client.owned(INSTALLATION) == (running,)

    client.stop(NAME, grace=timedelta(seconds=30))
    stopping = eventually(lambda: client.state(NAME), lambda pod: pod.deleted_at is not None)
    assert (stopping.phase, stopping.uid) == (PodPhase.RUNNING, first.uid)
    for pod in pods:
        path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0"
        control_plane.call("DELETE", path)
    gone = client.state(NAME, last_node=nodes[0])
    assert (gone.phase, gone.node, gone.node_exists) == (PodPhase.GONE, nodes[0], True)
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


def test_what_is_left_of_a_gang_whose_nodes_are_gone_is_owned_and_removed_as_one(
    control_plane: Any, cluster: Cluster, client: KubernetesCluster
) -> None:
    control_plane.add_node(cluster, "n1")
    uid = client.launch(built(cluster)).uid
    pods = eventually(
        lambda: pods_of(control_plane, cluster), lambda found: sum("nodeName" in pod["spec"] for pod in found) == 2
    )
    names = [pod["metadata"]["name"] for pod in pods]
    for name in names:
        control_plane.report_pod(cluster, name, "Succeeded", container={"terminated": {"exitCode": 0}})
    job = f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs/{NAME}"
    told = eventually(lambda: control_plane.call("GET", job)["status"], lambda status: "conditions" in status)
    for name in names:
        control_plane.call("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods/{name}")
    (left,) = client.owned(INSTALLATION)
    assert left == client.state(NAME)
    assert left.installation == INSTALLATION
    assert (left.name, left.attempt, left.uid, left.phase) == (NAME, NAME, uid, PodPhase.SUCCEEDED)
    assert (left.started_at, left.finished_at) == (moment(told["startTime"]), moment(told["completionTime"]))

    client.remove(replace(left, uid="00000000-0000-0000-0000-000000000000"))
    assert client.owned(INSTALLATION) == (left,)
    client.remove(left)
    assert client.owned(INSTALLATION) == ()
    kept = control_plane.call("GET", f"/api/v1/namespaces/{cluster.namespace}/services")["items"]
    assert kept == []


def test_the_job_of_somebody_else_is_left_alone(
    control_plane: Any, cluster: Cluster, client: KubernetesCluster
) -> None:
    foreign = built(cluster)
    foreign["metadata"] = {"name": NAME}
    control_plane.call("POST", f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs", foreign)
    with pytest.raises(LaunchRefused, match=f"already has a Job '{NAME}'"):
        client.launch(built(cluster))
