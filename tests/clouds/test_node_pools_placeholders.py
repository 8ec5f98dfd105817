"""Placeholder pods by the contract: a real scheduler binds and displaces them, the test is the autoscaler."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from spillway.clouds.base import PLACEHOLDER_LABEL
from spillway.clouds.placeholders import PRIORITY_CLASS
from spillway.errors import PoolRefused
from spillway.model import ScaledBy
from spillway.testing.node_pool_contract import GPUS, MOST, POOL, NodePoolContract, nodes, use
from spillway.testing.node_pool_world import Machines, PoolWorld
from spillway.testing.polling import eventually

MakeWorld = Callable[..., PoolWorld]
_numbers = itertools.count(1)


def pods(world: PoolWorld, label: str = "") -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/{world.cluster.namespace}/pods"
    found = world.api.items(path, {"labelSelector": label} if label else None)
    return [dict(pod) for pod in found if pod["status"]["phase"] != "Succeeded"]


def placeholders(world: PoolWorld) -> dict[str, str | None]:
    """By their names, the nodes that they hold."""
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods(world, PLACEHOLDER_LABEL)}


def judged(pod: dict[str, Any]) -> bool:
    """Whether the scheduler has bound the pod, or said that no node takes it."""
    return "nodeName" in pod["spec"] or any(
        condition["type"] == "PodScheduled" for condition in pod["status"].get("conditions") or ()
    )


def autoscaler(world: PoolWorld) -> Machines:
    """One more node for each pod that no node takes; nodes without a pod go."""
    eventually(lambda: pods(world), lambda seen: all(map(judged, seen)))
    found = pods(world)
    needed = {pod["spec"].get("nodeName") for pod in found} - {None}
    waiting = sum(1 for pod in found if "nodeName" not in pod["spec"])
    new = [f"auto-{next(_numbers)}-{world.cluster.namespace}" for _ in range(min(waiting, MOST - len(needed)))]
    return {str(name): {} for name in (*needed, *new)}


@pytest.fixture
def world(pool_world: MakeWorld) -> PoolWorld:
    world = pool_world(ScaledBy(provider="placeholders", image="pause:1"), autoscaler)
    world.scaler.set_target(POOL, 2)
    settled(world)
    return world


def settled(world: PoolWorld) -> None:
    """Let the autoscaler act, and the scheduler after it."""
    world.settle()
    eventually(lambda: placeholders(world), lambda seen: None not in seen.values())


class TestPlaceholderNodePools(NodePoolContract):
    pass


def test_a_placeholder_takes_a_whole_node_of_the_pool_and_comes_last(world: PoolWorld) -> None:
    held = placeholders(world)
    assert sorted(map(str, held.values())) == sorted(nodes(world))
    spec = pods(world, PLACEHOLDER_LABEL)[0]["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (-10, PRIORITY_CLASS)
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": str(GPUS)}
    assert spec["nodeSelector"] == world.selector
    assert spec["terminationGracePeriodSeconds"] == 0


def test_a_job_displaces_a_placeholder_and_the_pool_keeps_its_size(world: PoolWorld) -> None:
    job = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    path = f"/api/v1/namespaces/{world.cluster.namespace}/pods"
    selected = {"nodeSelector": dict(world.selector), "containers": [job]}
    world.api.json("POST", path, body={"metadata": {"name": "job"}, "spec": selected})

    def node() -> str:
        return str(world.api.json("GET", f"{path}/job")["spec"].get("nodeName", ""))

    taken = eventually(node)
    for _ in range(2):
        seen = use(world)
        assert seen.wanted == 2
        assert {one.name: one.pods for one in seen.nodes}[taken] == 1
        assert list(placeholders(world).values()) == [name for name in nodes(world) if name != taken]
        world.scaler.set_target(POOL, 2)


def test_placeholders_are_no_pods_that_jobs_have_to_wait_for(world: PoolWorld, control_plane: Any) -> None:
    pods = control_plane.open(world.cluster).describe().pods
    assert [pod.name for pod in pods if pod.namespace == world.cluster.namespace] == []  # other tests have others


def test_a_node_that_waits_to_be_taken_comes_back_where_more_are_wanted_again(world: PoolWorld) -> None:
    victim, other = sorted(nodes(world))
    world.scaler.set_target(POOL, 1, remove=[victim])
    assert world.cordoned() == {victim}
    assert list(placeholders(world).values()) == [other]
    assert use(world).wanted == 1
    world.scaler.set_target(POOL, 1)  # nobody names it any more, and it still is to go
    assert world.cordoned() == {victim}

    world.scaler.set_target(POOL, 2)
    assert not world.cordoned()
    held = eventually(lambda: placeholders(world), lambda seen: None not in seen.values())
    assert sorted(map(str, held.values())) == [victim, other]


def test_what_the_namespace_does_not_admit_is_refused_with_what_it_said(pool_world: MakeWorld) -> None:
    world = pool_world(ScaledBy(provider="placeholders", image=""), autoscaler)
    with pytest.raises(PoolRefused, match=r"pool 'cloud/gpu' does not get a placeholder pod: 422 .*image: Required"):
        world.scaler.set_target(POOL, 1)
