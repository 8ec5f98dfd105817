"""Reading nodes and pods as an API describes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.base import ATTEMPT_LABEL
from spillway.clouds.facts import NodeCondition, gpus_of, node_condition, node_state, pod_state, pod_use
from spillway.model import NodeState, PodPhase, PodState, PodUse
from spillway.testing.builders import node_pool

AT = "2026-11-30T12:00:00Z"
MOMENT = datetime(2026, 11, 30, 12, tzinfo=UTC)
READY = NodeCondition(exists=True, ready=True, changed_at=MOMENT)


def gpu(count: int | str, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {"nvidia.com/gpu": count}}, **fields}


GPU_COUNTS = {
    "one container": ({"containers": [gpu("4")]}, 4),
    "containers add up": ({"containers": [gpu(1), gpu("2"), {"name": "plain"}]}, 3),
    "requests only": ({"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2"}}}]}, 2),
    "none": ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]}, 0),
    "the neediest init container": ({"initContainers": [gpu(8), gpu(1)], "containers": [gpu(2)]}, 8),
    "init containers run one after the other": ({"initContainers": [gpu(2), gpu(2)], "containers": [gpu(3)]}, 3),
    "a sidecar stays": ({"initContainers": [gpu(1, restartPolicy="Always")], "containers": [gpu(2)]}, 3),
    "init beside a sidecar": (
        {"initContainers": [gpu(1, restartPolicy="Always"), gpu(4)], "containers": [gpu(2)]},
        5,
    ),
}


@pytest.mark.parametrize(("spec", "gpus"), GPU_COUNTS.values(), ids=GPU_COUNTS)
def test_gpus_are_counted_as_the_scheduler_sets_them_aside(spec: dict[str, Any], gpus: int) -> None:
    assert gpus_of(spec) == gpus


def node(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": {"pool": "a100", "nvidia.com/gpu.product": "A100-80GB"}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "lastTransitionTime": AT},
            ],
        },
    }


POOLS = (
    node_pool(name="any"),
    node_pool(name="a100", node_selector={"pool": "a100"}),
    node_pool(name="h100", node_selector={"pool": "h100"}),
)


def test_a_node_is_read_into_the_pool_with_the_most_specific_selector() -> None:
    assert node_state(node(), POOLS) == NodeState(
        name="n1",
        pool="a100",
        ready=True,
        schedulable=True,
        allocatable_gpus=8,
    )
    assert node_state(node(), POOLS[2:]).pool is None


SCHEDULABLE = {
    "plain": ({}, True),
    "GPU taint": ({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}, True),
    "spot taint": ({"taints": [{"key": "kubernetes.azure.com/scalesetpriority", "effect": "NoSchedule"}]}, True),
    "preference only": ({"taints": [{"key": "x", "effect": "PreferNoSchedule"}]}, True),
    "cordoned": ({"unschedulable": True}, False),
    "a taint of somebody": ({"taints": [{"key": "x", "effect": "NoSchedule"}]}, False),
    "not ready": ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, False),
}


@pytest.mark.parametrize(("spec", "schedulable"), SCHEDULABLE.values(), ids=SCHEDULABLE)
def test_a_node_is_schedulable_when_a_training_pod_could_be_put_there(spec: dict[str, Any], schedulable: bool) -> None:
    assert node_state(node(**spec), POOLS).schedulable is schedulable


def test_a_node_that_says_nothing_is_neither_ready_nor_has_it_gpus() -> None:
    silent = node_state({"metadata": {"name": "n2"}}, POOLS)
    assert (silent.ready, silent.allocatable_gpus) == (False, 0)


def test_a_node_that_leaves_is_told_from_one_that_is_well() -> None:
    well = node_condition(node())
    assert well == READY
    assert node_condition(None) == NodeCondition(exists=False)
    for leaving in (
        node(unschedulable=True),
        node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]),
        node() | {"metadata": {"name": "n1", "deletionTimestamp": AT}},
    ):
        assert node_condition(leaving) == NodeCondition(exists=True, ready=True, changed_at=MOMENT, leaving=True)


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "digits-1",
            "namespace": "training",
            "uid": "u-1",
            "creationTimestamp": AT,
            "labels": {ATTEMPT_LABEL: "digits-1"},
            **metadata,
        },
        "spec": {
            "nodeName": "n1",
            "terminationGracePeriodSeconds": 60,
            "containers": [{"name": "side", "image": "s"}, gpu(2) | {"name": "trainer", "image": "r/t@sha256:0"}],
        },
        "status": status,
    }


def test_a_pod_takes_gpus_until_it_has_ended() -> None:
    for phase in ("Pending", "Running", "Unknown"):
        assert pod_use(pod({"phase": phase})) == PodUse(
            name="digits-1", namespace="training", gpus=2, attempt="digits-1", node="n1"
        )
    assert pod_use(pod({"phase": "Succeeded"})) is None
    assert pod_use(pod({"phase": "Failed"})) is None
    foreign = pod({}, labels=None)
    del foreign["spec"]["nodeName"]
    assert pod_use(foreign) == PodUse(name="digits-1", namespace="training", gpus=2)
    assert pod_use({"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c"}]}}) is None


KNOWN = {
    "name": "digits-1",
    "cluster": "onprem",
    "image": "r/t@sha256:0",
    "uid": "u-1",
    "node": "n1",
    "grace": timedelta(seconds=60),
    "created_at": MOMENT,
    "node_ready": True,
    "node_changed_at": MOMENT,
    "node_exists": True,
    "scheduled": True,
    "attempt": "digits-1",
}
SIDE = {"name": "side", "state": {"running": {"startedAt": "2026-11-30T11:00:00Z"}}}


def container(**state: Any) -> list[dict[str, Any]]:
    return [SIDE, {"name": "trainer", "state": state}]


STATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing yet": ({}, {"phase": PodPhase.PENDING}),
    "running": (
        {"phase": "Running", "containerStatuses": container(running={"startedAt": AT})},
        {"phase": PodPhase.RUNNING, "started_at": MOMENT},
    ),
    "older control planes on a silent node": ({"phase": "Unknown"}, {"phase": PodPhase.RUNNING}),
    "pull error": (
        {"phase": "Pending", "containerStatuses": container(waiting={"reason": "ErrImagePull", "message": "m"})},
        {"phase": PodPhase.PENDING, "container_reason": "ErrImagePull", "container_message": "m"},
    ),
    "ended": (
        {
            "phase": "Failed",
            "containerStatuses": container(
                terminated={
                    "exitCode": 137,
                    "reason": "OOMKilled",
                    "message": "killed",
                    "startedAt": AT,
                    "finishedAt": "2026-11-30T12:00:09.5Z",
                }
            ),
        },
        {
            "phase": PodPhase.FAILED,
            "exit_code": 137,
            "container_reason": "OOMKilled",
            "container_message": "killed",
            "started_at": MOMENT,
            "finished_at": MOMENT + timedelta(seconds=9.5),
        },
    ),
    "disrupted": (
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "low on memory",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}],
        },
        {
            "phase": PodPhase.FAILED,
            "reason": "Evicted",
            "message": "low on memory",
            "disruption": "TerminationByKubelet",
        },
    ),
    "a disruption that was called off": (
        {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "x"}]},
        {"phase": PodPhase.RUNNING},
    ),
    "no node fits": (
        {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}],
        },
        {"phase": PodPhase.PENDING, "message": "0/2 nodes are available"},
    ),
    "a failed init container decides": (
        {
            "phase": "Failed",
            "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}],
            "containerStatuses": container(waiting={"reason": "PodInitializing"}),
        },
        {"phase": PodPhase.FAILED, "exit_code": 3, "container_reason": "Error"},
    ),
    "an init container that is done does not": (
        {
            "phase": "Running",
            "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 0}}}],
            "containerStatuses": container(running={"startedAt": AT}),
        },
        {"phase": PodPhase.RUNNING, "started_at": MOMENT},
    ),
}


@pytest.mark.parametrize(("status", "fields"), STATES.values(), ids=STATES)
def test_the_facts_of_a_pod_are_of_its_trainer(status: dict[str, Any], fields: dict[str, Any]) -> None:
    assert pod_state(pod(status), READY, cluster="onprem") == PodState(**KNOWN, **fields)


def test_a_deletion_is_dated_to_its_request_and_not_to_the_end_of_the_grace() -> None:
    going = pod({"phase": "Running"}, deletionTimestamp="2026-11-30T12:01:30Z", deletionGracePeriodSeconds=90)
    state = pod_state(going, READY, cluster="onprem")
    assert (state.deleted_at, state.grace) == (MOMENT, timedelta(seconds=90))


def test_a_pod_without_a_node_says_nothing_of_one() -> None:
    waiting = pod({"phase": "Pending"})
    del waiting["spec"]["nodeName"]
    state = pod_state(waiting, None, cluster="onprem")
    assert (state.node, state.scheduled, state.node_ready, state.node_exists) == (None, False, None, None)
