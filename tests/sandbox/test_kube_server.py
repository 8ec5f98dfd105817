"""The API server as a process: what a kill leaves, and what it answers before it is asked anything sensible."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, watch

from spillway.testing.kube_server import KubeCluster, start_cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[KubeCluster]:
    """An API server of this test's own, without nodes."""
    made = start_cluster("killed", tmp_path)
    yield made
    made.stop()


@pytest.fixture
def core(cluster: KubeCluster) -> Iterator[client.CoreV1Api]:
    api_client = cluster.client()
    yield client.CoreV1Api(api_client)
    api_client.close()


def _map(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"key": name}}


def test_a_killed_server_comes_back_with_every_object_and_goes_on_counting(
    cluster: KubeCluster, core: client.CoreV1Api
) -> None:
    made = [core.create_namespaced_config_map("default", _map(f"m{number}")) for number in range(20)]
    core.delete_namespaced_config_map("m7", "default")

    cluster.api.kill()
    cluster.api.start()

    seen = core.list_namespaced_config_map("default")
    kept = {item.metadata.name: (item.metadata.uid, item.metadata.resource_version) for item in made}
    del kept["m7"]
    assert {item.metadata.name: (item.metadata.uid, item.metadata.resource_version) for item in seen.items} == kept
    later = core.create_namespaced_config_map("default", _map("later"))
    assert int(later.metadata.resource_version) > int(seen.metadata.resource_version)


def test_a_watcher_of_a_version_before_a_restart_is_told_to_list_again(
    cluster: KubeCluster, core: client.CoreV1Api
) -> None:
    version = core.list_namespaced_config_map("default").metadata.resource_version
    core.create_namespaced_config_map("default", _map("missed"))
    cluster.api.kill()
    cluster.api.start()

    answer = core.list_namespaced_config_map(
        "default", watch=True, resource_version=version, timeout_seconds=5, _preload_content=False
    )

    (event,) = [json.loads(line) for line in answer.data.splitlines()]
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_pod_without_any_node_waits(core: client.CoreV1Api) -> None:
    container = {"name": "c", "image": "r:5000/i:1"}
    core.create_namespaced_pod("default", {"metadata": {"name": "p"}, "spec": {"containers": [container]}})

    stream = watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=60)
    conditions = next(c for event in stream if (c := event["object"].status.conditions))

    assert (conditions[0].reason, conditions[0].message) == ("Unschedulable", "no nodes available to schedule pods")


def test_requests_that_make_no_sense_get_a_status_and_never_a_traceback(cluster: KubeCluster) -> None:
    answers = {
        (method, path, body): _ask(cluster, method, path, body)
        for method, path, body in (
            ("GET", "/api/v1/nothing", ""),
            ("GET", "/apis/none.example/v1/things", ""),
            ("GET", "/api/v1/pods/p", ""),
            ("GET", "/api/v1/namespaces/default/pods/p/unknown", ""),
            ("GET", "/api/v1/pods?labelSelector=a+in+(b)", ""),
            ("GET", "/api/v1/pods?watch=1&resourceVersion=x", ""),
            ("POST", "/api/v1/namespaces/default/configmaps", "{"),
            ("POST", "/api/v1/namespaces/default/configmaps", "[]"),
            ("POST", "/api/v1/namespaces/default/configmaps", '{"kind": "Secret"}'),
            ("POST", "/api/v1/configmaps", '{"metadata": {"name": "a"}}'),
            ("PUT", "/api/v1/namespaces/default/configmaps", "{}"),
            ("POST", "/api/v1/namespaces/default/pods", '{"metadata": {"name": "a"}, "spec": "text"}'),
            ("POST", "/api/v1/namespaces/default/pods", '{"metadata": {"name": "a"}, "spec": {"containers": [1]}}'),
            ("POST", "/api/v1/namespaces/default/pods", '{"metadata": "text"}'),
            ("PATCH", "/api/v1/namespaces/default", "{}"),
            ("DELETE", "/api/v1/namespaces/default?gracePeriodSeconds=x", ""),
        )
    }

    assert list(answers.values()) == [
        (404, "NotFound"),
        (404, "NotFound"),
        (404, "NotFound"),
        (404, "NotFound"),
        (400, "BadRequest"),
        (400, "BadRequest"),
        (400, "BadRequest"),
        (400, "BadRequest"),
        (400, "BadRequest"),
        (400, "BadRequest"),
        (405, "MethodNotAllowed"),
        *[(400, "BadRequest")] * 3,
        (415, "UnsupportedMediaType"),
        (400, "BadRequest"),
    ]


def _ask(cluster: KubeCluster, method: str, path: str, body: str) -> tuple[int, str]:
    tls = ssl.create_default_context(cafile=cluster.certificates.ca_file)
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.api.port, context=tls, timeout=60)
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["reason"]
    finally:
        connection.close()


def test_many_writers_at_once_lose_no_update(core: client.CoreV1Api, cluster: KubeCluster) -> None:
    core.create_namespaced_config_map("default", {"metadata": {"name": "counter"}, "data": {"n": "0"}})

    def add(times: int) -> None:
        api_client = cluster.client()
        api = client.CoreV1Api(api_client)
        while times:
            seen = api.read_namespaced_config_map("counter", "default")
            seen.data["n"] = str(int(seen.data["n"]) + 1)
            try:
                api.replace_namespaced_config_map("counter", "default", seen)
                times -= 1
            except client.ApiException as problem:
                assert problem.status == 409
        api_client.close()

    writers = [threading.Thread(target=add, args=(10,)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert core.read_namespaced_config_map("counter", "default").data == {"n": "40"}
