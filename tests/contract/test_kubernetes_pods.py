"""What launching and watching pods needs of a cluster: from creation to the end, with logs, limits and evictions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kubernetes import client, watch

from spillway.testing.kube_space import Space, condition_reasons, eventually, terminated
from spillway.testing.runnable_image import SHELL

UNTIL_TERM = "trap 'echo got-term; exit 143' TERM; echo up; while :; do sleep 0.1; done"
GPU = "nvidia.com/gpu"


class TestPods:
    def test_a_pod_runs_and_its_output_is_its_log(self, space: Space) -> None:
        space.run("hello", "echo out; echo err >&2")

        pod = space.ended("hello")
        assert (pod.status.phase, terminated(pod).exit_code, terminated(pod).reason) == ("Succeeded", 0, "Completed")
        assert sorted(space.log("hello").splitlines()) == ["err", "out"]
        assert pod.spec.node_name
        assert pod.status.start_time

    def test_a_pod_that_waits_may_be_bound_to_a_node_by_anybody_once(self, space: Space) -> None:
        node = space.core.list_node().items[0].metadata.name
        space.run("bound", "true", spec={"nodeSelector": {"no": "such"}})
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"name": node}}
        bind = partial(space.core.create_namespaced_pod_binding, "bound", space.name, body, _preload_content=False)

        bind()

        assert space.find("bound").spec.node_name == node
        with pytest.raises(client.ApiException, match="is already assigned to node") as refused:
            bind()
        assert refused.value.status == 409

    def test_a_pod_goes_to_the_node_that_it_prefers_also_where_another_one_is_emptier(self, space: Space) -> None:
        nodes = [node for node in space.core.list_node().items if GPU in (node.status.allocatable or {})]
        preferred = max(node.metadata.name for node in nodes)
        field = {"key": "metadata.name", "operator": "In", "values": [preferred]}
        wishes = [{"weight": 100, "preference": {"matchFields": [field]}}]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}
        for name in ("wants-1", "wants-2"):
            space.run(name, "echo up; exec sleep 60", spec={"affinity": affinity}, resources={"limits": {GPU: "1"}})
            assert space.phase(name, "Running").spec.node_name == preferred
        for name in ("wants-1", "wants-2"):
            space.core.delete_namespaced_pod(name, space.name, grace_period_seconds=0)
            space.gone(name)

    def test_a_failing_pod_tells_its_code_and_message(self, space: Space) -> None:
        space.run("fails", "printf 'at step 7' > /dev/termination-log; exit 7")

        pod = space.ended("fails")
        ended = terminated(pod)
        assert (pod.status.phase, ended.exit_code, ended.reason, ended.message) == ("Failed", 7, "Error", "at step 7")
        assert "DisruptionTarget" not in condition_reasons(pod)

    def test_variables_come_from_secrets_config_maps_and_the_pod_itself(self, space: Space) -> None:
        space.core.create_namespaced_config_map(space.name, {"metadata": {"name": "vars"}, "data": {"a": "1"}})
        space.core.create_namespaced_secret(space.name, {"metadata": {"name": "vars"}, "stringData": {"b": "2"}})
        env = [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "vars", "key": "a"}}},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "vars", "key": "b"}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "D", "value": "$(A)$(B)"},
        ]
        space.run("vars", "echo $A $B $C $D", env=env)

        space.ended("vars")
        assert space.log("vars") == "1 2 vars 12\n"

    def test_init_containers_run_first_and_share_a_volume(self, space: Space) -> None:
        mount = [{"name": "shared", "mountPath": "/shared"}]
        init = {"name": "init", "image": space.image.name, "command": [*SHELL, "echo first > /shared/file"]}
        spec = {"initContainers": [{**init, "volumeMounts": mount}], "volumes": [{"name": "shared", "emptyDir": {}}]}
        space.run("inits", "cat /shared/file", volumeMounts=mount, spec=spec)

        pod = space.ended("inits")
        assert (pod.status.phase, space.log("inits", container="base")) == ("Succeeded", "first\n")
        assert pod.status.init_container_statuses[0].state.terminated.exit_code == 0

    def test_a_log_is_followed_live_and_cut_as_asked(self, space: Space) -> None:
        spec = {"terminationGracePeriodSeconds": 1}
        space.run("live", "for i in 1 2 3; do echo line$i; sleep 0.3; done; sleep 600", spec=spec)
        space.says("live", "line1")

        lines = watch.Watch().stream(space.core.read_namespaced_pod_log, "live", space.name)

        assert [next(lines) for _ in range(3)] == ["line1", "line2", "line3"]
        lines.close()
        stamp, _, text = space.log("live", tail_lines=1, timestamps=True).partition(" ")
        assert text == "line3\n"
        assert stamp.startswith("20")
        assert stamp.endswith("Z")
        assert space.log("live", since_seconds=3600) == "line1\nline2\nline3\n"
        assert space.log("live", limit_bytes=7) == "line1\nl"

    def test_a_pod_without_a_node_has_an_empty_log(self, space: Space) -> None:
        space.run("nowhere", "true", spec={"nodeSelector": {"none": "such"}})

        assert space.log("nowhere") == ""

    def test_creating_a_pod_twice_gives_one_pod(self, space: Space) -> None:
        space.run("once", "true")

        with pytest.raises(client.ApiException) as refused:
            space.run("once", "true")
        assert (refused.value.status, json.loads(refused.value.body)["reason"]) == (409, "AlreadyExists")

    def test_deleting_a_pod_lets_it_end_within_its_grace(self, space: Space) -> None:
        space.run("graceful", UNTIL_TERM, spec={"terminationGracePeriodSeconds": 30})
        space.says("graceful", "up")
        stream = space.core.read_namespaced_pod_log("graceful", space.name, follow=True, _preload_content=False)

        deleted = space.core.delete_namespaced_pod("graceful", space.name)

        assert deleted.metadata.deletion_timestamp
        assert deleted.metadata.deletion_grace_period_seconds == 30
        assert b"".join(stream.stream()).decode().splitlines() == ["up", "got-term"]
        space.gone("graceful")

    def test_a_pod_that_ignores_the_signal_is_killed_after_its_grace(self, space: Space) -> None:
        space.run("stubborn", "trap '' TERM; echo up; while :; do sleep 0.1; done")
        space.says("stubborn", "up")

        started = time.monotonic()
        space.core.delete_namespaced_pod("stubborn", space.name, grace_period_seconds=2)
        space.gone("stubborn")

        assert time.monotonic() - started >= 1.5

    def test_a_deadline_ends_a_pod_with_that_reason(self, space: Space) -> None:
        space.run("late", "sleep 60", spec={"activeDeadlineSeconds": 2, "terminationGracePeriodSeconds": 1})

        pod = space.ended("late")
        assert (pod.status.phase, pod.status.reason) == ("Failed", "DeadlineExceeded")

    def test_an_image_that_cannot_be_pulled_is_told_and_the_pod_stays_pending(self, space: Space) -> None:
        space.run("imageless", "true", image=f"127.0.0.1:1/none@sha256:{'0' * 64}")

        told = space.waiting("imageless", "ErrImagePull", "ImagePullBackOff")
        assert "127.0.0.1:1/none" in told.message
        assert space.find("imageless").status.phase == "Pending"
        with pytest.raises(client.ApiException) as refused:
            space.log("imageless")
        assert refused.value.status == 400


class TestEviction:
    def test_the_eviction_api_ends_a_pod_and_leaves_a_trace(self, space: Space) -> None:
        space.run("evicted", "trap 'sleep 1; exit 143' TERM; echo up; while :; do sleep 0.1; done")
        space.says("evicted", "up")

        _evict(space, "evicted")

        pod = space.find("evicted")
        assert pod.metadata.deletion_timestamp
        assert condition_reasons(pod)["DisruptionTarget"] == "EvictionByEvictionAPI"
        space.gone("evicted")


def _evict(space: Space, name: str) -> None:
    metadata = client.V1ObjectMeta(name=name, namespace=space.name)
    space.core.create_namespaced_pod_eviction(name, space.name, client.V1Eviction(metadata=metadata))


class TestNodes:
    @pytest.fixture
    def gpus(self, space: Space) -> int:
        """GPUs of the cluster."""
        nodes = space.core.list_node().items
        return sum(int((node.status.allocatable or {}).get(GPU, 0)) for node in nodes)

    def test_a_node_tells_what_it_has_and_that_it_is_alive(self, space: Space, gpus: int) -> None:
        nodes = [node for node in space.core.list_node().items if GPU in (node.status.allocatable or {})]

        assert gpus > 0
        for node in nodes:
            ready = next(c for c in node.status.conditions if c.type == "Ready")
            assert ready.status == "True"
            assert node.metadata.labels["nvidia.com/gpu.product"]
            assert node.metadata.labels["kubernetes.io/hostname"] == node.metadata.name
            lease = client.CoordinationV1Api(space.api_client).read_namespaced_lease(
                node.metadata.name, "kube-node-lease"
            )
            assert lease.spec.holder_identity == node.metadata.name

    @pytest.fixture
    def full(self, space: Space, gpus: int) -> Iterator[list[str]]:
        """Pods that take every GPU of the cluster, one each."""
        names = [f"holder-{number}" for number in range(gpus)]
        for name in names:
            space.run(name, "echo up; exec sleep 60", resources={"limits": {GPU: "1"}})
        for name in names:
            space.says(name, "up")
        yield names
        for name in names:
            if space.find(name):
                space.core.delete_namespaced_pod(name, space.name, grace_period_seconds=0)

    def test_a_pod_for_which_no_gpu_is_free_waits_with_a_reason_and_runs_when_one_is(
        self, space: Space, full: list[str]
    ) -> None:
        space.run("queued", "echo on a GPU", resources={"limits": {GPU: "1"}})

        def refused() -> Any:
            conditions = space.find("queued").status.conditions or []
            return next((c for c in conditions if c.type == "PodScheduled" and c.status == "False"), None)

        told = eventually(refused)
        nodes = len(space.core.list_node().items)
        assert told.reason == "Unschedulable"
        assert told.message.startswith(f"0/{nodes} nodes are available: ")
        assert "Insufficient nvidia.com/gpu" in told.message

        space.core.delete_namespaced_pod(full[0], space.name, grace_period_seconds=0)
        assert space.ended("queued").status.phase == "Succeeded"

    def test_a_cordoned_node_takes_no_new_pod(self, space: Space) -> None:
        node = next(n.metadata.name for n in space.core.list_node().items if GPU in (n.status.allocatable or {}))
        space.core.patch_node(node, {"spec": {"unschedulable": True}})
        try:
            space.run("cordoned", "true", spec={"nodeSelector": {"kubernetes.io/hostname": node}})
            eventually(lambda: condition_reasons(space.find("cordoned")).get("PodScheduled") == "Unschedulable")
        finally:
            space.core.patch_node(node, {"spec": {"unschedulable": None}})
        assert space.ended("cordoned").status.phase == "Succeeded"


class TestJobs:
    def test_an_indexed_job_runs_one_pod_for_each_index(self, space: Space) -> None:
        batch = client.BatchV1Api(space.api_client)
        template = space.pod("unused", *SHELL, "echo index=$JOB_COMPLETION_INDEX")
        spec = {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": {"metadata": {"labels": {"app": "indexed"}}, "spec": template["spec"]},
        }
        batch.create_namespaced_job(space.name, {"metadata": {"name": "indexed"}, "spec": spec})

        def complete() -> bool:
            status = batch.read_namespaced_job_status("indexed", space.name).status
            return any(c.type == "Complete" and c.status == "True" for c in status.conditions or [])

        eventually(complete)
        pods = space.core.list_namespaced_pod(space.name, label_selector="job-name=indexed").items
        assert sorted(space.log(pod.metadata.name) for pod in pods) == ["index=0\n", "index=1\n"]

        batch.delete_namespaced_job("indexed", space.name, propagation_policy="Background")
        selected = {"label_selector": "job-name=indexed"}
        eventually(lambda: not space.core.list_namespaced_pod(space.name, **selected).items)
