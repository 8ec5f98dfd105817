"""What became of a pod, and how one is ended, on a real API server; the test reports what node agents would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.kubernetes import KubernetesCluster
from spillway.losses import judge
from spillway.model import Cluster, PodPhase, PodState, VerdictKind
from spillway.testing.builders import INSTALLATION, onprem_cluster
from spillway.testing.manifests import IMAGE, manifest
from spillway.testing.polling import eventually
from spillway.testing.scripted_api import Answer, ScriptedApi

Script = Callable[..., ScriptedApi]

READY_SINCE = datetime(2026, 11, 30, 12, tzinfo=UTC)
GRACE = timedelta(seconds=30)


def test_state_tells_what_became_of_the_pod_and_its_node(control_plane: Any, cluster: Cluster, client: Any) -> None:
    name = "digits-7f3a-1"
    launched = client.launch(manifest(cluster))
    assert (launched.node, launched.node_exists, launched.grace) == (None, None, GRACE)
    assert "available" in eventually(lambda: client.state(name).message)  # what the scheduler says of the nodes

    node = control_plane.add_node(cluster, "n1")
    eventually(lambda: client.state(name).node)
    control_plane.report_pod(cluster, name, "Running", container={"running": {"startedAt": "2026-11-30T12:00:01Z"}})
    running = client.state(name)
    assert running == PodState(
        name=name,
        phase=PodPhase.RUNNING,
        cluster="onprem",
        image=IMAGE,
        uid=launched.uid,
        node=node,
        grace=GRACE,
        created_at=launched.created_at,
        node_ready=True,
        node_changed_at=READY_SINCE,
        node_exists=True,
        scheduled=True,
        started_at=READY_SINCE + timedelta(seconds=1),
        attempt=name,
        installation=INSTALLATION,
    )
    assert client.owned(INSTALLATION) == (running,)

    control_plane.report_node(node, ready=False)
    assert client.state(name) == replace(running, node_ready=False)

    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    ended = {"exitCode": 143, "reason": "Error", "finishedAt": "2026-11-30T12:00:09Z"}
    control_plane.report_pod(
        cluster, name, "Failed", container={"terminated": ended}, conditions=[condition], reason="Terminated"
    )
    failed = client.state(name)
    assert (failed.phase, failed.exit_code, failed.reason, failed.disruption) == (
        PodPhase.FAILED,
        143,
        "Terminated",
        "TerminationByKubelet",
    )


def test_a_pod_that_is_gone_is_told_with_its_node(control_plane: Any, cluster: Cluster, client: Any) -> None:
    node = control_plane.add_node(cluster, "n1")
    client.launch(manifest(cluster))
    eventually(lambda: client.state("digits-7f3a-1").node)
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/digits-7f3a-1?gracePeriodSeconds=0"
    control_plane.call("DELETE", path)
    gone = PodState(
        name="digits-7f3a-1",
        phase=PodPhase.GONE,
        cluster="onprem",
        node=node,
        node_exists=True,
        node_ready=True,
        node_changed_at=READY_SINCE,
    )
    assert client.state("digits-7f3a-1", last_node=node) == gone
    control_plane.remove_node(node)
    gone_too = replace(gone, node_exists=False, node_ready=None, node_changed_at=None)
    assert client.state("digits-7f3a-1", last_node=node) == gone_too
    assert client.state("never-there") == PodState(name="never-there", phase=PodPhase.GONE, cluster="onprem")


def test_stopping_asks_once_with_the_grace_and_a_pod_that_is_gone_is_a_success(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    control_plane.add_node(cluster, "n1")
    client.launch(manifest(cluster))
    eventually(lambda: client.state("digits-7f3a-1").node)
    control_plane.report_pod(cluster, "digits-7f3a-1", "Running", container={"running": {}})
    before = datetime.now(UTC)
    client.stop("digits-7f3a-1", grace=timedelta(seconds=90))
    client.stop("digits-7f3a-1", grace=timedelta(seconds=90))
    going = client.state("digits-7f3a-1")
    assert (going.phase, going.grace) == (PodPhase.RUNNING, timedelta(seconds=90))
    assert going.deleted_at is not None
    assert abs(going.deleted_at - before) < timedelta(seconds=30)
    client.stop("never-there", grace=GRACE)


def test_an_ended_pod_is_removed_and_never_another_of_its_name(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    control_plane.add_node(cluster, "n1")
    name = client.launch(manifest(cluster)).name
    eventually(lambda: client.state(name).node)
    control_plane.report_pod(cluster, name, "Succeeded", container={"terminated": {"exitCode": 0}})
    ended = client.state(name)
    client.remove(replace(ended, uid="00000000-0000-0000-0000-000000000000"))
    assert client.state(name) == ended
    client.remove(ended)
    assert client.state(name).phase is PodPhase.GONE
    client.remove(ended)


def test_no_pod_is_taken_from_the_api_while_its_container_may_still_run(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    control_plane.add_node(cluster, "n1")
    client.launch(manifest(cluster))
    eventually(lambda: client.state("digits-7f3a-1").node)
    control_plane.report_pod(cluster, "digits-7f3a-1", "Running", container={"running": {}})
    client.stop("digits-7f3a-1", grace=timedelta(0))
    assert client.state("digits-7f3a-1").phase is PodPhase.RUNNING


def test_during_back_off_the_last_event_says_why_the_pull_failed(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    control_plane.add_node(cluster, "n1")
    launched = client.launch(manifest(cluster))
    eventually(lambda: client.state("digits-7f3a-1").node)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{IMAGE}"'}}
    control_plane.report_pod(cluster, "digits-7f3a-1", "Pending", container=waiting)
    assert client.state("digits-7f3a-1").container_message == f'Back-off pulling image "{IMAGE}"'
    for minute, message in enumerate(("Failed to pull image: 429", "Failed to pull image: not found", "Error: x")):
        control_plane.add_event(cluster, launched.name, "Failed", message, minute=minute)
    assert client.state("digits-7f3a-1").container_message == (
        f'Back-off pulling image "{IMAGE}": Failed to pull image: not found'
    )


@pytest.mark.parametrize(
    ("reason", "message", "disruption"),
    [
        ("Preempted", "Preempted by pod 6f1e on node n1", "Preempted"),
        ("TaintManagerEviction", "Marking for deletion Pod training/digits-7f3a-1", "TaintManagerEviction"),
        ("TaintManagerEviction", "Cancelling deletion of Pod training/digits-7f3a-1", None),
        ("Killing", "Stopping container trainer", None),
    ],
)
def test_a_pod_taken_away_between_two_looks_is_told_from_one_that_a_person_deleted(
    control_plane: Any, cluster: Cluster, client: Any, reason: str, message: str, disruption: str | None
) -> None:
    control_plane.add_node(cluster, "n1")
    name = client.launch(manifest(cluster)).name
    eventually(lambda: client.state(name).node)
    control_plane.add_event(cluster, name, reason, message)
    control_plane.add_event(cluster, "another-pod", "Preempted", "x")
    control_plane.call("DELETE", f"/api/v1/namespaces/{cluster.namespace}/pods/{name}?gracePeriodSeconds=0")
    gone = client.state(name)
    assert (gone.phase, gone.disruption) == (PodPhase.GONE, disruption)
    kind = VerdictKind.DELETED_BY_PERSON if disruption is None else VerdictKind.PREEMPTED
    assert judge(gone, now=datetime.now(UTC), startup_limit=GRACE, node_margin=GRACE).kind is kind


def test_events_that_may_not_be_read_are_unknown(script: Script) -> None:
    server = script(Answer(status=404), Answer(status=404), Answer(body={"items": []}), Answer(status=403))
    client = KubernetesCluster(cluster=onprem_cluster(), api_client=server.client())
    assert client.state("digits-1") == PodState(name="digits-1", phase=PodPhase.GONE, cluster="onprem")
