"""The client on a real API server; the test reports what node agents would."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.base import ATTEMPT_LABEL
from spillway.clouds.kubernetes import KubernetesCluster
from spillway.clouds.pod import build_pod, pull_secret, store_secret
from spillway.errors import AccessDenied, LaunchRefused, Missing
from spillway.losses import VerdictKind, judge
from spillway.model import Cluster, NodeState, PodPhase, PodState, PodUse
from spillway.testing.builders import attempt, job_spec, onprem_cluster
from spillway.testing.polling import eventually
from spillway.testing.scripted_api import Answer, ScriptedApi

Script = Callable[..., ScriptedApi]

IMAGE = "registry.onprem:5000/train/digits@sha256:" + "a" * 64
READY_SINCE = datetime(2026, 11, 30, 12, tzinfo=UTC)
GRACE = timedelta(seconds=30)


def manifest(cluster: Cluster, *, run: str = "digits-7f3a", gpus: int = 1, **job: Any) -> dict[str, Any]:
    of = attempt(run=run, job=job_spec(gpus_per_node=gpus, **job))
    return dict(
        build_pod(
            attempt=of, cluster=cluster, image=IMAGE, environment={}, store_secret="store", pull_secret="registry"
        )
    )


@pytest.fixture
def cluster(control_plane: Any) -> Cluster:
    declared: Cluster = control_plane.cluster()
    return declared


@pytest.fixture
def client(control_plane: Any, cluster: Cluster) -> Any:
    return control_plane.open(cluster)


def test_describe_gives_the_nodes_and_every_pod_that_takes_gpus(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    name = control_plane.add_node(cluster, "n1")
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    client.launch(manifest(cluster, gpus=1))
    other = control_plane.cluster()
    nowhere = {"nodeSelector": {"no": "such"}}
    control_plane.create_pod(other.namespace, "foreign", **nowhere, containers=[{"name": "c", "image": "i", **gpu}])
    control_plane.create_pod(
        other.namespace,
        "prepares",
        **nowhere,
        containers=[{"name": "c", "image": "i"}],
        initContainers=[{"name": "i", "image": "i", **gpu}],
    )
    control_plane.create_pod(other.namespace, "without-gpus", **nowhere)
    control_plane.create_pod(other.namespace, "ended", **nowhere, containers=[{"name": "c", "image": "i", **gpu}])
    control_plane.report_pod(other, "ended", "Succeeded")
    eventually(lambda: client.state("digits-7f3a-1").node)

    seen = client.describe()

    assert seen.cluster == cluster
    assert [node for node in seen.nodes if node.name == name] == [
        NodeState(
            name=name,
            pool="a100",
            ready=True,
            schedulable=True,
            allocatable_gpus=4,
        )
    ]
    ours = {cluster.namespace, other.namespace}
    assert sorted((pod for pod in seen.pods if pod.namespace in ours), key=lambda pod: pod.name) == [
        PodUse(name="digits-7f3a-1", namespace=cluster.namespace, gpus=1, attempt="digits-7f3a-1", node=name),
        PodUse(name="foreign", namespace=other.namespace, gpus=2),
        PodUse(name="prepares", namespace=other.namespace, gpus=2),
    ]


def test_launching_twice_gives_one_pod(cluster: Cluster, client: Any) -> None:
    first, second = client.launch(manifest(cluster)), client.launch(manifest(cluster))
    assert first.uid == second.uid
    assert (first.phase, first.attempt, first.cluster, first.image) == (
        PodPhase.PENDING,
        "digits-7f3a-1",
        "onprem",
        IMAGE,
    )
    assert [pod.uid for pod in client.owned()] == [first.uid]


def test_of_many_launchers_each_gets_the_same_pod(control_plane: Any, cluster: Cluster) -> None:
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda _: control_plane.open(cluster).launch(manifest(cluster)), range(8)))
    assert len({state.uid for state in states}) == 1


def test_a_foreign_pod_of_that_name_is_left_alone(control_plane: Any, cluster: Cluster, client: Any) -> None:
    foreign = control_plane.create_pod(cluster.namespace, "digits-7f3a-1")
    with pytest.raises(LaunchRefused) as caught:
        client.launch(manifest(cluster))
    assert "already has a Pod 'digits-7f3a-1'" in str(caught.value)
    assert foreign["metadata"]["uid"] in str(caught.value)
    assert client.state("digits-7f3a-1").uid == foreign["metadata"]["uid"]


def test_the_pod_of_another_attempt_is_not_adopted(control_plane: Any, cluster: Cluster, client: Any) -> None:
    client.launch(manifest(cluster))
    other = manifest(cluster)
    other["metadata"] = {**other["metadata"], "labels": {ATTEMPT_LABEL: "digits-7f3a-9"}}
    with pytest.raises(LaunchRefused, match="is not of attempt 'digits-7f3a-9'"):
        client.launch(other)


def test_a_pod_that_the_api_rejects_is_refused_with_its_words(cluster: Cluster, client: Any) -> None:
    broken = manifest(cluster)
    broken["spec"] = {**broken["spec"], "containers": []}
    with pytest.raises(LaunchRefused, match=r"cluster 'onprem' refused Pod 'digits-7f3a-1': .*spec\.containers"):
        client.launch(broken)


def test_a_namespace_that_is_missing_is_named(control_plane: Any) -> None:
    elsewhere = onprem_cluster(namespace="not-there")
    client = control_plane.open(elsewhere)
    assert client.namespace_exists() is False
    for call in (
        lambda: client.launch(manifest(elsewhere)),
        lambda: client.apply([store_secret("store", "not-there", {})]),
    ):
        with pytest.raises(Missing, match="namespace 'not-there' is not in cluster 'onprem'; create it"):
            call()


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
    )
    assert client.owned() == (running,)

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
    assert client.state("digits-7f3a-1") == gone
    control_plane.remove_node(node)
    assert client.state("digits-7f3a-1") == replace(gone, node_exists=False, node_ready=None, node_changed_at=None)
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


def test_no_pod_is_taken_from_the_api_while_its_container_may_still_run(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    control_plane.add_node(cluster, "n1")
    client.launch(manifest(cluster))
    eventually(lambda: client.state("digits-7f3a-1").node)
    control_plane.report_pod(cluster, "digits-7f3a-1", "Running", container={"running": {}})
    client.stop("digits-7f3a-1", grace=timedelta(0))
    assert client.state("digits-7f3a-1").phase is PodPhase.RUNNING


def test_applying_makes_objects_be_as_given_whatever_was_there(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    namespace = cluster.namespace

    def read(path: str) -> dict[str, Any]:
        found: dict[str, Any] = control_plane.call("GET", f"/api/v1/namespaces/{namespace}/{path}")
        return found

    def config_map(**data: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}

    def service(port: int) -> dict[str, Any]:
        spec = {"selector": {"a": "b"}, "ports": [{"port": port}]}
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}

    secret = pull_secret("registry", namespace, host="h", username="u", password="p")
    client.apply([secret, config_map(a="1", b="2"), service(80)])
    uids = [read(path)["metadata"]["uid"] for path in ("secrets/registry", "configmaps/settings", "services/web")]
    client.apply([secret, config_map(b="3"), service(81)])
    assert read("secrets/registry")["data"] == secret["data"]
    assert read("configmaps/settings")["data"] == {"b": "3"}
    assert [port["port"] for port in read("services/web")["spec"]["ports"]] == [81]
    assert uids == [
        read(path)["metadata"]["uid"] for path in ("secrets/registry", "configmaps/settings", "services/web")
    ]


def test_only_pods_that_were_launched_here_are_owned(control_plane: Any, cluster: Cluster, client: Any) -> None:
    control_plane.create_pod(cluster.namespace, "foreign")
    client.launch(manifest(cluster, run="a"))
    client.launch(manifest(cluster, run="b"))
    assert sorted(pod.name for pod in client.owned()) == ["a-1", "b-1"]
    assert control_plane.open(control_plane.cluster()).owned() == ()


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
    ("reason", "disruption"),
    [("Preempted", "Preempted"), ("TaintManagerEviction", "TaintManagerEviction"), ("Killing", None)],
)
def test_a_pod_taken_away_between_two_looks_is_told_from_one_that_a_person_deleted(
    control_plane: Any, cluster: Cluster, client: Any, reason: str, disruption: str | None
) -> None:
    control_plane.add_node(cluster, "n1")
    name = client.launch(manifest(cluster)).name
    eventually(lambda: client.state(name).node)
    control_plane.add_event(cluster, name, reason, "x")
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


def test_a_wrong_token_is_denied(control_plane: Any, cluster: Cluster) -> None:
    with pytest.raises(AccessDenied, match="cluster 'onprem' refused the credentials: 401"):
        control_plane.open(cluster, token="wrong").describe()


def test_the_api_tells_its_time_and_its_namespaces(client: Any) -> None:
    assert client.namespace_exists() is True
    told = client.server_time()
    assert told is not None
    assert abs(told - datetime.now(UTC)) < timedelta(seconds=30)
