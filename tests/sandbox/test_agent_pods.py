"""Pods on real node agents: from their image to their end, and every way in which a cluster takes one away."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from spillway.registries.digest import digest_of
from spillway.sandbox.image_layer import Layer
from spillway.testing.kube_server import KubeCluster
from spillway.testing.registry_server import RegistryServer
from spillway.testing.runnable_image import SHELL, ImageSource

DEADLINE_SECONDS = 40
NAMESPACE = "default"
SLEEP_UNTIL_TERM = "trap 'echo got-term; exit 143' TERM; echo up; while :; do sleep 0.05; done"
_numbers = count(1)


class Pods:
    """Creates pods, waits for what becomes of them, and removes them."""

    def __init__(self, cluster: KubeCluster, api: client.CoreV1Api, image: str) -> None:
        self.cluster, self.api, self.image = cluster, api, image
        self._names: list[str] = []

    def create(self, *command: str, name: str | None = None, **fields: Any) -> str:
        """A pod of one container; ``fields`` are of the container (image, env, ...) or, as ``spec``, of the pod."""
        name = name or f"pod-{next(_numbers)}"
        spec = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "imagePullSecrets": [{"name": "pull"}],
            **fields.pop("spec", {}),
        }
        container = {"name": "main", "image": self.image, **({"command": list(command)} if command else {}), **fields}
        self.api.create_namespaced_pod(
            NAMESPACE, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        )
        self._names.append(name)
        return name

    def shell(self, script: str, **fields: Any) -> str:
        return self.create(*SHELL, script, **fields)

    def find(self, name: str) -> Any:
        try:
            return self.api.read_namespaced_pod(name, NAMESPACE)
        except client.ApiException as problem:
            if problem.status == 404:
                return None
            raise

    def wait(self, name: str, until: Callable[[Any], Any]) -> Any:
        """The pod when the condition holds for it; None stands for a pod that is gone."""
        pod = eventually(lambda: (found,) if until(found := self.find(name)) else None, lambda: self.find(name))
        return pod[0]

    def ended(self, name: str) -> Any:
        return self.wait(name, lambda pod: pod and pod.status.phase in {"Succeeded", "Failed"})

    def running(self, name: str) -> Any:
        """The pod when its program has written its first line."""
        pod = self.wait(name, lambda pod: pod and pod.status.phase == "Running")
        eventually(lambda: self.log(name), lambda: pod)
        return pod

    def waiting(self, name: str, *reasons: str) -> Any:
        """The container's waiting state when it has one of the reasons."""
        pod = self.wait(name, lambda pod: _waiting(pod) is not None and _waiting(pod).reason in reasons)
        return _waiting(pod)

    def log(self, name: str, **options: Any) -> str:
        answer = self.api.read_namespaced_pod_log(name, NAMESPACE, _preload_content=False, **options)
        text: str = answer.data.decode()
        return text

    def remove_all(self) -> None:
        for name in self._names:
            if self.find(name):
                self.api.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)


def eventually(probe: Callable[[], Any], describe: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := probe()):
        assert time.monotonic() < deadline, f"not within {DEADLINE_SECONDS} s: {describe()}"
        time.sleep(0.05)
    return found


def _waiting(pod: Any) -> Any:
    statuses = pod.status.container_statuses if pod else None
    return statuses[0].state.waiting if statuses else None


def _terminated(pod: Any) -> Any:
    return pod.status.container_statuses[0].state.terminated


def _disruption(pod: Any) -> str | None:
    return next((c.reason for c in pod.status.conditions if c.type == "DisruptionTarget"), None)


@pytest.fixture(scope="module")
def images(registries: Mapping[str, RegistryServer]) -> ImageSource:
    return ImageSource(server=registries["onprem"])


@pytest.fixture(scope="module")
def core(kube_api: KubeCluster, images: ImageSource) -> Iterator[client.CoreV1Api]:
    api_client = kube_api.client()
    api = client.CoreV1Api(api_client)
    data = {".dockerconfigjson": json.dumps(images.docker_config)}
    secret = {"metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson", "stringData": data}
    api.create_namespaced_secret(NAMESPACE, secret)
    yield api
    api.delete_namespaced_secret("pull", NAMESPACE)
    api_client.close()


@pytest.fixture
def pods(kube_api: KubeCluster, core: client.CoreV1Api, images: ImageSource) -> Iterator[Pods]:
    found = Pods(kube_api, core, images.put("plain", {"opt/plain/file": b"plain\n"}))
    yield found
    found.remove_all()


@pytest.fixture
def spare(kube_api: KubeCluster) -> Iterator[str]:
    """A node of this test alone, to be destroyed."""
    node = f"spare-{next(_numbers)}"
    kube_api.add_agent(node)
    yield node
    kube_api.agents.pop(node).stop()
    api_client = kube_api.client()
    api = client.CoreV1Api(api_client)
    if node in {found.metadata.name for found in api.list_node().items}:
        api.delete_node(node)
    api_client.close()


def _on(node: str, **spec: Any) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": node}, **spec}


# -- from the image ---------------------------------------------------------------------------------------------------


def test_the_program_its_arguments_and_its_environment_come_from_the_image_and_the_pod(
    pods: Pods, images: ImageSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = images.put(
        "program",
        {"opt/app/bin/show": b"#!/bin/sh\npwd; echo $@; env | sort\n"},
        Entrypoint=["/opt/app/bin/show"],
        Cmd=["default"],
        WorkingDir="/opt/app/work",
        Env=["FROM_IMAGE=1", "BOTH=image"],
    )

    name = pods.create(image=image, env=[{"name": "BOTH", "value": "pod"}])

    assert pods.ended(name).status.phase == "Succeeded"
    assert pods.log(name).splitlines() == [
        "/opt/app/work",
        "default",
        "BOTH=pod",
        "FROM_IMAGE=1",
        "HOME=/root",
        f"HOSTNAME={name}",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PWD=/opt/app/work",
    ]


def test_code_that_the_image_does_not_bring_is_not_there(pods: Pods, images: ImageSource) -> None:
    module = {"opt/code/lib/answer.py": b"print('from the layer')\n"}
    run = {"Entrypoint": ["python3", "-m", "answer"], "Env": ["PYTHONPATH=/opt/code/lib"]}
    whole, without = images.put("code", {"opt/x": b""}, module, **run), images.put("code", {"opt/x": b""}, **run)

    good, bad = pods.create(image=whole), pods.create(image=without)

    assert (pods.ended(good).status.phase, pods.log(good)) == ("Succeeded", "from the layer\n")
    assert pods.ended(bad).status.phase == "Failed"
    assert "No module named answer" in pods.log(bad)


def test_the_project_that_runs_the_agent_cannot_be_imported_in_a_container(pods: Pods) -> None:
    name = pods.create("python3", "-c", "import spillway")

    assert pods.ended(name).status.phase == "Failed"
    assert "No module named 'spillway'" in pods.log(name)


def test_a_masked_directory_is_empty_in_a_container_and_what_a_container_writes_is_not_on_the_host(
    kube_api: KubeCluster, pods: Pods
) -> None:
    hidden, written = Path("/var/lib") / f"spillway-mask-{os.getpid()}", Path("/var") / f"spillway-{os.getpid()}"
    hidden.mkdir()
    (hidden / "secret").write_text("x")
    node = f"masked-{next(_numbers)}"
    kube_api.add_agent(node, masks=(hidden,))
    try:
        shown = pods.shell(f"ls -A {hidden}; touch {written}; echo done", spec=_on(node))
        elsewhere = pods.shell(f"ls -A {hidden}", spec=_on("node-1"))
        pods.ended(shown), pods.ended(elsewhere)

        assert (pods.log(shown), pods.log(elsewhere)) == ("done\n", "secret\n")
        assert not written.exists()
    finally:
        kube_api.agents.pop(node).stop()
        pods.api.delete_node(node)
        (hidden / "secret").unlink()
        hidden.rmdir()


def test_an_image_that_the_registry_does_not_have_is_waited_for_and_runs_when_it_comes(
    pods: Pods, images: ImageSource
) -> None:
    layer = images.layer({"opt/late/file": b"late"})
    later = images.put_layers("late", [layer], Cmd=["cat", "/opt/late/file"])
    elsewhere = later.replace("/late@", "/late-copy@")

    name = pods.create(image=elsewhere)
    told = pods.waiting(name, "ErrImagePull", "ImagePullBackOff")
    assert "not found" in told.message
    assert elsewhere in told.message

    images.put_layers("late-copy", [layer], Cmd=["cat", "/opt/late/file"])
    assert (pods.ended(name).status.phase, pods.log(name)) == ("Succeeded", "late\n")


def test_an_image_that_was_taken_out_of_the_registry_is_not_started_from_the_cache(
    pods: Pods, images: ImageSource
) -> None:
    image = images.put("withdrawn", {"opt/w/file": b"w"}, Cmd=["true"])
    pods.ended(pods.create(image=image, spec=_on("node-1")))

    revisions = images.server.state_dir.rglob(f"repositories/withdrawn/_manifests/revisions/sha256/{image[-64:]}/link")
    next(iter(revisions)).unlink()

    assert "not found" in pods.waiting(pods.create(image=image, spec=_on("node-1")), "ErrImagePull").message


def test_a_pull_without_the_secret_is_unauthorized(pods: Pods) -> None:
    name = pods.create("true", spec={"imagePullSecrets": []})

    assert "unauthorized" in pods.waiting(name, "ErrImagePull", "ImagePullBackOff").message


def test_a_registry_that_does_not_listen_refuses_the_connection(pods: Pods) -> None:
    name = pods.create("true", image=f"127.0.0.1:1/train@sha256:{'0' * 64}")

    assert "connection refused" in pods.waiting(name, "ErrImagePull", "ImagePullBackOff").message


def test_a_name_that_is_no_image_is_told(pods: Pods) -> None:
    name = pods.create("true", image="127.0.0.1:5000/Upper@sha256:12")

    assert "sha256:" in pods.waiting(name, "ErrImagePull", "ImagePullBackOff").message


def test_a_layer_whose_bytes_were_changed_in_the_registry_is_refused(pods: Pods, images: ImageSource) -> None:
    layer = images.layer({"opt/tampered/file": b"good"})
    image = images.put_layers("tampered", [layer], Cmd=["cat", "/opt/tampered/file"])
    stored = next(iter(images.server.state_dir.rglob(f"{layer.digest[7:]}/data")))
    stored.write_bytes(images.layer({"opt/tampered/file": b"evil"}).body)

    name = pods.create(image=image)

    assert f"expected digest {layer.digest}" in pods.waiting(name, "ErrImagePull", "ImagePullBackOff").message


def test_a_layer_that_is_not_what_the_configuration_says_is_refused(pods: Pods, images: ImageSource) -> None:
    honest = images.layer({"opt/liar/file": b"x"})
    liar = Layer(body=honest.body, diff_id=digest_of(b"something else"))

    name = pods.create(image=images.put_layers("liar", [liar], Cmd=["true"]))

    assert f"expected digest {liar.diff_id}" in pods.waiting(name, "ErrImagePull", "ImagePullBackOff").message


# -- a container's life -----------------------------------------------------------------------------------------------


def test_volumes_and_devices_are_where_the_pod_wants_them(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "host").write_text("host\n")
    pods.api.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "conf"}, "data": {"key": "config\n"}})
    pods.api.create_namespaced_secret(NAMESPACE, {"metadata": {"name": "sec"}, "stringData": {"key": "secret\n"}})
    volumes = [
        {"name": "h", "hostPath": {"path": str(tmp_path)}},
        {"name": "c", "configMap": {"name": "conf", "items": [{"key": "key", "path": "sub/renamed"}]}},
        {"name": "s", "secret": {"secretName": "sec"}},
        {"name": "e", "emptyDir": {}},
    ]
    mounts = [{"name": v["name"], "mountPath": f"/mnt/{v['name']}", "readOnly": v["name"] == "h"} for v in volumes]
    script = (
        "cat /mnt/h/host /mnt/c/sub/renamed /mnt/s/key /mnt/e/first; touch /mnt/h/x 2>/dev/null || echo read-only;"
        "test -d /dev/shm && test -c /dev/null && echo devices; echo $$; ls /proc | grep -c '^[0-9]'"
    )
    first = {"name": "init", "image": pods.image, "command": [*SHELL, "echo first > /mnt/e/first"]}
    try:
        name = pods.shell(
            script,
            volumeMounts=mounts,
            spec={"volumes": volumes, "initContainers": [{**first, "volumeMounts": mounts}]},
        )

        assert pods.ended(name).status.phase == "Succeeded"
        lines = pods.log(name).splitlines()
        assert lines[:6] == ["host", "config", "secret", "first", "read-only", "devices"]
        assert (lines[6], int(lines[7]) < 10) == ("1", True)
    finally:
        pods.api.delete_namespaced_config_map("conf", NAMESPACE)
        pods.api.delete_namespaced_secret("sec", NAMESPACE)


def test_a_failing_program_gives_its_code_and_its_termination_message(pods: Pods) -> None:
    pod = pods.ended(pods.shell("printf 'step 7' > /dev/termination-log; exit 3"))

    ended = _terminated(pod)
    assert (pod.status.phase, ended.exit_code, ended.reason, ended.message) == ("Failed", 3, "Error", "step 7")
    assert _disruption(pod) is None


def test_the_end_of_the_log_is_the_message_where_the_pod_wants_it(pods: Pods) -> None:
    name = pods.shell("echo why; exit 1", terminationMessagePolicy="FallbackToLogsOnError")

    assert _terminated(pods.ended(name)).message == "why\n"


def test_a_program_that_is_not_there_is_a_start_error(pods: Pods) -> None:
    ended = _terminated(pods.ended(pods.create("no-such-program")))

    assert (ended.exit_code, ended.reason) == (128, "StartError")
    assert "'no-such-program': executable file not found" in ended.message


def test_a_failing_container_is_started_again_where_the_policy_says_so(pods: Pods) -> None:
    mount = [{"name": "e", "mountPath": "/mnt/e"}]
    name = pods.shell(
        "test -e /mnt/e/tried && exit 0; touch /mnt/e/tried; exit 1",
        volumeMounts=mount,
        spec={"restartPolicy": "OnFailure", "volumes": [{"name": "e", "emptyDir": {}}]},
    )

    pod = pods.ended(name)
    assert (pod.status.phase, pod.status.container_statuses[0].restart_count) == ("Succeeded", 1)


def test_a_pod_beyond_its_deadline_fails_with_that_reason(pods: Pods) -> None:
    pod = pods.ended(pods.shell("sleep 60", spec={"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 0}))

    assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")


def test_deleting_a_pod_sends_term_to_its_first_process_and_waits_for_its_end(pods: Pods) -> None:
    name = pods.shell(SLEEP_UNTIL_TERM, spec={"terminationGracePeriodSeconds": 30})
    pods.running(name)
    log = pods.api.read_namespaced_pod_log(name, NAMESPACE, follow=True, _preload_content=False)

    pods.api.delete_namespaced_pod(name, NAMESPACE)

    assert pods.find(name).metadata.deletion_timestamp is not None
    pods.wait(name, lambda pod: pod is None)
    assert b"".join(log.stream()).decode().splitlines() == ["up", "got-term"]


def test_a_program_that_ignores_term_is_killed_after_the_grace(pods: Pods) -> None:
    name = pods.shell("trap '' TERM; echo up; while :; do sleep 0.05; done", spec={"terminationGracePeriodSeconds": 1})
    pods.running(name)

    started = time.monotonic()
    pods.api.delete_namespaced_pod(name, NAMESPACE)
    pods.wait(name, lambda pod: pod is None)

    assert time.monotonic() - started >= 1


def test_gpus_are_told_to_the_pod_and_counted_by_the_cluster(pods: Pods) -> None:
    gpus = {"limits": {"nvidia.com/gpu": "2"}}
    holding = [pods.shell("echo $NVIDIA_VISIBLE_DEVICES; sleep 60", resources=gpus) for _ in range(2)]
    for name in holding:
        pods.running(name)
    assert [pods.log(name) for name in holding] == ["0,1\n", "0,1\n"]

    name = pods.shell("echo ran", resources=gpus)
    pod = pods.wait(name, lambda pod: any(c.reason == "Unschedulable" for c in pod.status.conditions or []))
    told = pod.status.conditions[0]
    assert (pod.status.phase, told.message) == ("Pending", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")

    pods.api.delete_namespaced_pod(holding[0], NAMESPACE, grace_period_seconds=0)
    assert pods.ended(name).status.phase == "Succeeded"


# -- taken away -------------------------------------------------------------------------------------------------------


def test_an_evicted_pod_fails_with_143_and_the_reason(pods: Pods) -> None:
    name = pods.shell(SLEEP_UNTIL_TERM)
    node = pods.running(name).spec.node_name

    assert pods.cluster.drill(node, f"/evict/{NAMESPACE}/{name}") == [name]

    pod = pods.ended(name)
    assert (pod.status.phase, pod.status.reason, _terminated(pod).exit_code) == ("Failed", "Evicted", 143)
    assert _disruption(pod) == "TerminationByKubelet"
    assert pods.log(name) == "up\ngot-term\n"


def test_a_node_that_shuts_down_ends_its_pods_and_takes_no_more(pods: Pods, spare: str) -> None:
    name = pods.shell(SLEEP_UNTIL_TERM, spec=_on(spare))
    pods.running(name)

    assert pods.cluster.drill(spare, "/shutdown") == [name]

    pod = pods.ended(name)
    assert (pod.status.phase, pod.status.reason, _terminated(pod).exit_code) == ("Failed", "Terminated", 143)
    assert _disruption(pod) == "TerminationByKubelet"
    ready = next(c for c in pods.api.read_node(spare).status.conditions if c.type == "Ready")
    assert ready.status == "False"
    late = pods.create("true", spec={"nodeName": spare})
    assert pods.ended(late).status.reason == "NodeShutdown"


def test_a_node_that_falls_silent_is_unknown_and_its_pods_are_deleted_but_stay_until_it_is_gone(
    pods: Pods, spare: str
) -> None:
    name = pods.shell(SLEEP_UNTIL_TERM, spec=_on(spare))
    pods.running(name)
    pods.cluster.agents[spare].kill()

    pod = pods.wait(name, lambda pod: pod.metadata.deletion_timestamp)
    assert _disruption(pod) == "DeletionByTaintManager"
    node = pods.api.read_node(spare)
    assert next(c.status for c in node.status.conditions if c.type == "Ready") == "Unknown"
    assert {t.key for t in node.spec.taints} == {"node.kubernetes.io/unreachable"}

    pods.api.delete_node(spare)
    pods.wait(name, lambda pod: pod is None)


def test_containers_do_not_outlive_their_agent_and_its_successor_reports_them(pods: Pods, spare: str) -> None:
    name = pods.shell("echo up; sleep 600 & sleep 600", spec=_on(spare))
    pods.running(name)
    agent = pods.cluster.agents[spare]
    assert len(_processes_of(name)) == 3

    agent.kill()
    eventually(lambda: not _processes_of(name), lambda: _processes_of(name))
    agent.start()

    pod = pods.ended(name)
    assert (pod.status.phase, pod.status.reason, _disruption(pod)) == (
        "Failed",
        "NodeAgentRestarted",
        "TerminationByKubelet",
    )
    assert (_terminated(pod).exit_code, _terminated(pod).reason) == (137, "ContainerStatusUnknown")
    assert pods.log(name) == "up\n"
    assert pods.ended(pods.create("true", spec=_on(spare))).status.phase == "Succeeded"


def test_an_agent_that_is_stopped_takes_its_containers_with_it_at_once(pods: Pods, spare: str) -> None:
    name = pods.shell("trap '' TERM; echo up; while :; do sleep 0.05; done", spec=_on(spare))
    pods.running(name)
    agent = pods.cluster.agents[spare]
    assert agent.process is not None

    agent.process.terminate()

    assert agent.process.wait(4) == 0
    assert _processes_of(name) == []
    agent.start()
    assert pods.ended(name).status.reason == "NodeAgentRestarted"


def _processes_of(pod: str) -> list[str]:
    """Processes of the machine whose environment says that they run in the pod."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            if f"HOSTNAME={pod}\0".encode() in (directory / "environ").read_bytes():
                found.append(directory.name)
        except OSError:
            continue
    return found


def test_a_pod_runs_on_while_the_api_server_is_killed_and_back_and_its_end_is_reported(pods: Pods) -> None:
    name = pods.shell("echo up; sleep 1; echo over; exit 5")
    running = pods.running(name)

    pods.cluster.api.kill()
    eventually(lambda: not _processes_of(name), lambda: _processes_of(name))
    pods.cluster.api.start()

    pod = pods.ended(name)
    assert (pod.metadata.uid, _terminated(pod).exit_code) == (running.metadata.uid, 5)
    assert pods.log(name) == "up\nover\n"
    assert pods.ended(pods.create("true")).status.phase == "Succeeded"


def test_a_program_beyond_its_memory_limit_is_killed_for_it(pods: Pods) -> None:
    allocate = "held = bytearray(400 << 20); print(len(held))"
    limits = {"limits": {"memory": "96Mi"}}

    over = pods.ended(pods.create("python3", "-c", allocate, resources=limits))
    within = pods.ended(pods.create("python3", "-c", allocate, resources={"limits": {"memory": "1Gi"}}))

    assert (_terminated(over).exit_code, _terminated(over).reason) == (137, "OOMKilled")
    assert within.status.phase == "Succeeded"
