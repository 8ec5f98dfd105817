"""Controllers over a store with a clock of the test's own: what happens after which silence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.sandbox.kube.controllers import EVENTS_KEPT, NodeLifecycle, expire_events
from spillway.sandbox.kube.jobs import run_jobs
from spillway.sandbox.kube.objects import Objects
from spillway.sandbox.kube.resources import (
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Object,
    condition,
    name_of,
    set_condition,
)
from spillway.sandbox.kube.scheduler import schedule
from spillway.sandbox.kube.status import ApiError
from spillway.sandbox.kube.store import Store

LOST_AFTER = timedelta(seconds=40)
EVICTION_AFTER_SECONDS = 30
CONTAINER = {"name": "main", "image": "r:5000/i:1"}


class Plane:
    """A control plane without a server, on a clock that only the test moves."""

    def __init__(self, directory: Path) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.uptime = 0.0
        self.objects = Objects(
            Store(directory / "objects"), lambda: self.now, pod_eviction_after_seconds=EVICTION_AFTER_SECONDS
        )
        self.lifecycle = NodeLifecycle(self.objects, LOST_AFTER)
        for name in ("default", "kube-node-lease"):
            self.objects.create(NAMESPACES, None, {"metadata": {"name": name}})

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.uptime += seconds
        self.lifecycle.run(self.uptime)

    def node(self, name: str = "n1", *, gpus: int = 2) -> Object:
        allocatable = {"nvidia.com/gpu": str(gpus), "cpu": "8", "pods": "10"}
        ready = [{"type": "Ready", "status": "True"}]
        body = {"metadata": {"name": name}, "status": {"allocatable": allocatable, "conditions": ready}}
        self.objects.create(LEASES, "kube-node-lease", {"metadata": {"name": name}, "spec": {"renewTime": "0"}})
        return self.objects.create(NODES, None, body)

    def beat(self, name: str = "n1") -> None:
        lease = self.objects.store.get(LEASES, "kube-node-lease", name)
        self.objects.replace(LEASES, lease, {**lease, "spec": {"renewTime": self.now.isoformat()}})

    def pod(self, name: str, *, gpus: int = 0, **spec: Any) -> Object:
        container = {**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        return self.objects.create(
            PODS, "default", {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
        )

    def get(self, name: str) -> Object:
        return self.objects.store.get(PODS, "default", name)

    def end(self, name: str, phase: str) -> None:
        self.objects.edit(self.get(name), lambda pod: pod["status"].update(phase=phase))

    def ready(self) -> tuple[str, list[str]]:
        node = self.objects.store.get(NODES, None, "n1")
        taints = [f"{taint['key'].split('/')[1]}:{taint['effect']}" for taint in node["spec"].get("taints") or []]
        return (condition(node, "Ready") or {})["status"], taints


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    plane = Plane(tmp_path)
    yield plane
    plane.objects.store.close()


def test_a_silent_node_is_lost_after_the_grace_and_back_with_its_first_heartbeat(plane: Plane) -> None:
    plane.node()
    plane.pass_time(0)
    plane.pass_time(40)
    assert plane.ready() == ("True", [])

    plane.pass_time(1)
    assert plane.ready() == ("Unknown", ["unreachable:NoSchedule", "unreachable:NoExecute"])

    plane.beat()
    node = plane.objects.store.get(NODES, None, "n1")
    plane.objects.edit(node, lambda new: set_condition(new, "Ready", "True", "KubeletReady", "", now="x"))
    plane.pass_time(1)
    assert plane.ready() == ("True", [])


def test_a_control_plane_that_was_away_gives_every_node_its_whole_grace_again(plane: Plane) -> None:
    plane.node()
    plane.pass_time(0)
    plane.now += timedelta(hours=1)
    restarted = NodeLifecycle(plane.objects, LOST_AFTER)

    restarted.run(10_000)
    restarted.run(10_040)
    assert plane.ready() == ("True", [])

    restarted.run(10_041)
    assert plane.ready()[0] == "Unknown"


def test_pods_of_a_lost_node_are_deleted_when_their_toleration_ends(plane: Plane) -> None:
    plane.node()
    plane.pod("p", nodeName="n1")
    plane.pass_time(0)
    plane.pass_time(41)
    plane.pass_time(EVICTION_AFTER_SECONDS)
    assert "deletionTimestamp" not in plane.get("p")["metadata"]

    plane.pass_time(1)
    assert "deletionTimestamp" in plane.get("p")["metadata"]
    assert (condition(plane.get("p"), "DisruptionTarget") or {})["reason"] == "DeletionByTaintManager"


def test_a_taint_that_a_pod_does_not_tolerate_deletes_it_at_once_and_no_other(plane: Plane) -> None:
    node = plane.node()
    taint = {"key": "spot", "value": "reclaim", "effect": "NoExecute"}
    plane.pod("goes", nodeName="n1")
    plane.pod("stays", nodeName="n1", tolerations=[{"key": "spot", "operator": "Exists"}])
    plane.objects.edit(node, lambda new: new["spec"].update(taints=[taint]))

    plane.pass_time(1)

    assert "deletionTimestamp" in plane.get("goes")["metadata"]
    assert "deletionTimestamp" not in plane.get("stays")["metadata"]


def test_pods_whose_node_object_is_gone_fail_and_then_go(plane: Plane) -> None:
    node = plane.node()
    plane.pod("p", nodeName="n1")
    plane.objects.delete(NODES, node)
    plane.pass_time(0)
    plane.pass_time(39)
    assert plane.get("p")["status"]["phase"] == "Pending"
    before = plane.objects.store.revision

    plane.pass_time(1)

    changes = [c for c in plane.objects.store.changes_after(before) if c.resource is PODS]
    assert [(c.kind, c.obj["status"]["phase"]) for c in changes] == [("MODIFIED", "Failed"), ("DELETED", "Failed")]
    assert (condition(changes[-1].obj, "DisruptionTarget") or {})["reason"] == "DeletionByPodGC"


def test_the_oldest_pod_that_fits_is_bound_and_the_next_waits_with_a_reason(plane: Plane) -> None:
    plane.node("n1"), plane.node("n2")
    for name in ("a", "b", "c"):
        plane.pod(name, gpus=2)
        plane.now += timedelta(seconds=1)

    schedule(plane.objects)

    assert [plane.get(name)["spec"].get("nodeName") for name in "abc"] == ["n1", "n2", None]
    told = condition(plane.get("c"), "PodScheduled") or {}
    assert (told["status"], told["reason"], told["message"]) == (
        "False",
        "Unschedulable",
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
    )
    before = plane.objects.store.revision
    schedule(plane.objects)
    assert plane.objects.store.revision == before

    plane.end("a", "Succeeded")
    schedule(plane.objects)
    assert plane.get("c")["spec"]["nodeName"] == "n1"


def _job(plane: Plane, **spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    body = {"metadata": {"name": "j"}, "spec": {"completionMode": "Indexed", "template": template, **spec}}
    return plane.objects.create(JOBS, "default", body)


def _pods(plane: Plane) -> list[Object]:
    return plane.objects.store.list(PODS, "default")


def _status(plane: Plane) -> Object:
    status: Object = plane.objects.store.get(JOBS, "default", "j")["status"]
    return status


def test_an_indexed_job_has_a_pod_for_each_index_and_is_complete_when_all_have_succeeded(plane: Plane) -> None:
    _job(plane, completions=3, parallelism=2)
    run_jobs(plane.objects)
    first = _pods(plane)
    index = "batch.kubernetes.io/job-completion-index"
    assert [pod["metadata"]["labels"][index] for pod in first] == ["0", "1"]
    variable = first[1]["spec"]["containers"][0]["env"][0]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.labels['{index}']"

    plane.end(name_of(first[1]), "Succeeded")
    run_jobs(plane.objects)
    assert [pod["metadata"]["labels"][index] for pod in _pods(plane)] == ["0", "1", "2"]
    assert (_status(plane)["succeeded"], _status(plane)["active"]) == (1, 2)

    for pod in _pods(plane):
        plane.end(name_of(pod), "Succeeded")
    run_jobs(plane.objects)
    assert (_status(plane)["succeeded"], _status(plane)["active"]) == (3, 0)
    assert [c["type"] for c in _status(plane)["conditions"]] == ["Complete"]


def test_a_job_replaces_failed_pods_until_its_back_off_limit_is_passed(plane: Plane) -> None:
    job = _job(plane, completions=1, backoffLimit=1)
    for expected in (1, 2):
        run_jobs(plane.objects)
        assert len(_pods(plane)) == expected
        for pod in _pods(plane):
            plane.end(name_of(pod), "Failed")

    run_jobs(plane.objects)
    failed = (_status(plane)["conditions"][0]["type"], _status(plane)["conditions"][0]["reason"])
    assert failed == ("Failed", "BackoffLimitExceeded")

    plane.objects.delete(JOBS, plane.objects.store.get(JOBS, "default", name_of(job)))
    assert _pods(plane) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"completionMode": "NonIndexed"}, "spec.completionMode"),
        ({"completions": None}, "spec.completions"),
        ({"template": {"spec": {"restartPolicy": "OnFailure", "containers": [CONTAINER]}}}, "restartPolicy"),
    ],
    ids=["not indexed", "no completions", "restarts"],
)
def test_a_job_of_another_kind_is_refused(plane: Plane, change: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError, match=field):
        _job(plane, **{"completions": 1, **change})


def test_events_are_forgotten_after_an_hour(plane: Plane) -> None:
    plane.objects.event(plane.node(), "Normal", "Old", "", "test")
    plane.now += EVENTS_KEPT
    plane.objects.event(plane.objects.store.get(NODES, None, "n1"), "Normal", "New", "", "test")
    plane.now += timedelta(seconds=1)

    expire_events(plane.objects)

    assert [event["reason"] for event in plane.objects.store.list(EVENTS)] == ["New"]


def test_pods_give_way_to_one_of_a_higher_priority_as_few_and_as_unimportant_as_it_takes(plane: Plane) -> None:
    for name, value in (("least", -10), ("less", -5)):
        plane.objects.create(PRIORITY_CLASSES, None, {"metadata": {"name": name}, "value": value})
    plane.node(gpus=3)
    for name, gpus, priority in (("a", 1, "less"), ("b", 1, "least"), ("c", 1, "least")):
        plane.pod(name, gpus=gpus, nodeName="n1", priorityClassName=priority)
    plane.pod("job", gpus=2)

    schedule(plane.objects)

    going = [name for name in "abc" if "deletionTimestamp" in plane.get(name)["metadata"]]
    assert going == ["b", "c"]
    assert (condition(plane.get("b"), "DisruptionTarget") or {})["reason"] == "PreemptionByScheduler"
    assert plane.get("job")["status"]["nominatedNodeName"] == "n1"

    schedule(plane.objects)
    assert "deletionTimestamp" not in plane.get("a")["metadata"]

    for name in going:
        plane.end(name, "Failed")
    schedule(plane.objects)
    assert plane.get("job")["spec"]["nodeName"] == "n1"


def test_a_pod_is_bound_before_those_of_a_lower_priority_and_displaces_no_equal_one(plane: Plane) -> None:
    plane.objects.create(PRIORITY_CLASSES, None, {"metadata": {"name": "least"}, "value": -10})
    plane.node(gpus=1)
    plane.pod("placeholder", gpus=1, priorityClassName="least")
    plane.pod("job", gpus=1)
    plane.pod("later", gpus=1)

    schedule(plane.objects)

    assert [plane.get(name)["spec"].get("nodeName") for name in ("placeholder", "job", "later")] == [None, "n1", None]
    assert "deletionTimestamp" not in plane.get("job")["metadata"]


def test_a_priority_class_that_does_not_exist_is_refused(plane: Plane) -> None:
    with pytest.raises(ApiError, match="no PriorityClass with name high was found"):
        plane.pod("p", priorityClassName="high")
