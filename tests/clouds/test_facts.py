"""Reading nodes, and what pods need of them, as an API describes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.facts import (
    Needs,
    NodeCondition,
    gpu_resources,
    gpus_of,
    needs_by_node,
    needs_of,
    node_condition,
    node_state,
)
from spillway.model import GpuShare, NodeState
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
        cpu_millicores=8000,
        also_matches=("any",),
    )
    assert node_state(node(), POOLS[2:]).pool is None


def test_a_node_tells_since_when_it_is_there_and_since_when_it_is_ready() -> None:
    seen = node()
    seen["metadata"]["creationTimestamp"] = "2026-11-30T11:55:00Z"
    assert (node_state(seen, POOLS).created_at, node_state(seen, POOLS).ready_at) == (
        MOMENT - timedelta(minutes=5),
        MOMENT,
    )
    seen["status"]["conditions"][1]["status"] = "Unknown"
    assert node_state(seen, POOLS).ready_at is None


def test_a_pool_of_parts_counts_the_parts_that_its_nodes_have() -> None:
    halves = GpuShare(resource="nvidia.com/mig-3g.40gb", per_gpu=2, memory_gib=40)
    pools = (node_pool(node_selector={"pool": "a100"}, gpu_share=halves), node_pool(name="h100"))
    seen = node()
    seen["status"]["allocatable"][halves.resource] = "16"
    assert node_state(seen, pools).allocatable_gpus == 16
    assert gpu_resources(pools) == ["nvidia.com/gpu", halves.resource]


def plain(
    node: str | None, *, phase: str = "Running", labels: dict[str, str] | None = None, **requests: str
) -> dict[str, Any]:
    """A pod without GPUs."""
    return {
        "metadata": {"name": "p", "labels": labels or {}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"phase": phase},
    }


def test_a_node_has_for_pods_that_are_counted_what_others_leave() -> None:
    seen = node()
    seen["status"]["allocatable"]["memory"] = "16Gi"
    pods = [
        plain("n1", cpu="250m", memory="1Gi"),
        plain("n1", cpu="0.1", memory="64M"),
        plain("n2", cpu="4"),
        plain(None, cpu="4"),
        plain("n1", cpu="4", phase="Succeeded"),
        plain("n1", cpu="4", labels={"spillway.dev/placeholder": "gpu"}),
    ]
    state = node_state(seen, POOLS, needs_by_node(pods)["n1"])
    assert (state.cpu_millicores, state.memory_mib) == (7650, 15360 - 62)
    assert node_state(seen, POOLS, Needs(cpu_millicores=9000)).cpu_millicores == 0
    del seen["status"]["allocatable"]["memory"]
    assert node_state(seen, POOLS).memory_mib is None


def test_cores_and_memory_are_rounded_up_and_those_of_the_sandbox_count() -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "0.0001", "memory": "1"}, "limits": {"cpu": "8"}}}]
    spec = {"containers": containers, "overhead": {"cpu": "250m", "memory": "2Mi"}}
    assert needs_of(spec) == Needs(cpu_millicores=251, memory_mib=3)


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/cuda.driver-version.full": "535.129", "nvidia.com/cuda.runtime-version.full": "12.2"},
        {
            "nvidia.com/cuda.driver.major": "535",
            "nvidia.com/cuda.driver.minor": "129",
            "nvidia.com/cuda.runtime.major": "12",
            "nvidia.com/cuda.runtime.minor": "2",
        },
    ],
    ids=["present labels", "labels of older releases"],
)
def test_the_driver_of_a_node_is_what_gpu_feature_discovery_found(labels: dict[str, str]) -> None:
    seen = node()
    seen["metadata"]["labels"] = labels
    assert (node_state(seen, POOLS).driver, node_state(seen, POOLS).driver_cuda) == ("535.129", "12.2")


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
