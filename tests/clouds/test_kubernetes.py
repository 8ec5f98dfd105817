"""The client on a real API server; the test reports what node agents would."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL
from spillway.clouds.pod import pull_secret, store_secret
from spillway.errors import AccessDenied, LaunchRefused, Missing
from spillway.model import Cluster, NodeState, PodPhase, PodUse
from spillway.testing.builders import INSTALLATION, onprem_cluster
from spillway.testing.manifests import IMAGE, manifest
from spillway.testing.polling import eventually


def test_describe_gives_the_nodes_and_every_pod_that_takes_gpus(
    control_plane: Any, cluster: Cluster, client: Any
) -> None:
    name = control_plane.add_node(cluster, "n1")
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    client.launch(manifest(cluster))
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
    needs = {"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}
    control_plane.create_pod(
        other.namespace, "beside", nodeName=name, containers=[{"name": "c", "image": "i", **needs}]
    )
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
            cpu_millicores=63_750,
            memory_mib=255 * 1024,
        )
    ]
    ours = {cluster.namespace, other.namespace}
    assert sorted((pod for pod in seen.pods if pod.namespace in ours), key=lambda pod: pod.name) == [
        PodUse(
            name="digits-7f3a-1",
            namespace=cluster.namespace,
            gpus=1,
            attempt="digits-7f3a-1",
            node=name,
            cpu_millicores=1000,
            memory_mib=1024,
        ),
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
    assert [pod.uid for pod in client.owned(INSTALLATION)] == [first.uid]


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
    other["metadata"] = {**other["metadata"], "labels": {**other["metadata"]["labels"], ATTEMPT_LABEL: "digits-7f3a-9"}}
    with pytest.raises(LaunchRefused, match="is not of attempt 'digits-7f3a-9'"):
        client.launch(other)


@pytest.mark.parametrize("whose", ["theirs", None])
def test_the_pod_of_another_installation_is_neither_adopted_nor_owned(
    cluster: Cluster, client: Any, whose: str | None
) -> None:
    theirs = manifest(cluster, installation=whose or "")
    if whose is None:
        del theirs["metadata"]["labels"][INSTALLATION_LABEL]
    launched = client.launch(theirs)
    with pytest.raises(LaunchRefused, match=f"is not of attempt 'digits-7f3a-1' of installation '{INSTALLATION}'"):
        client.launch(manifest(cluster))
    assert client.owned(INSTALLATION) == ()
    assert [pod.uid for pod in client.owned(whose)] == [launched.uid]


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
        lambda: client.apply([store_secret("store", "not-there", {}, installation=INSTALLATION)]),
    ):
        with pytest.raises(Missing, match="namespace 'not-there' is not in cluster 'onprem'; create it"):
            call()


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

    secret = pull_secret("registry", namespace, host="h", username="u", password="p", installation=INSTALLATION)
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
    assert sorted(pod.name for pod in client.owned(INSTALLATION)) == ["a-1", "b-1"]
    assert control_plane.open(control_plane.cluster()).owned(INSTALLATION) == ()


def test_a_wrong_token_is_denied(control_plane: Any, cluster: Cluster) -> None:
    with pytest.raises(AccessDenied, match="cluster 'onprem' refused the credentials: 401"):
        control_plane.open(cluster, token="wrong").describe()


def test_the_api_tells_its_time_and_its_namespaces(client: Any) -> None:
    assert client.namespace_exists() is True
    assert client.clock_ahead == client.describe().clock_ahead == timedelta(0)
