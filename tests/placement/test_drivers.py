"""The driver of a pool's nodes against the CUDA that an image's tag names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillway.model import NodeState, Rejection
from spillway.placement.drivers import driver_problem
from spillway.placement.policy import place
from spillway.testing.builders import (
    cluster_state,
    job_spec,
    node,
    node_pool,
    onprem_cluster,
    placement_policy,
    snapshot,
)

# CUDA, the node's driver, the newest CUDA that this supports, the problem
CASES = {
    "as new as needed": ("12.1", "525.60.13", "12.0", None),
    "an older branch": ("12.1", "470.82.01", "11.4", "CUDA 12.1 needs driver 525 or newer, node a100-0 has 470.82.01"),
    "a newer minor version on the same branch": ("11.8", "450.80", "11.0", None),
    "a CUDA that is not in the table": (
        "14.0",
        "580.1",
        "13.0",
        "needs CUDA 14.0, the driver of node a100-0 supports 13.0",
    ),
    "no label": ("12.1", None, None, None),
    "only what the driver supports": ("12.1", None, "11.4", "needs CUDA 12.1, the driver of node a100-0 supports 11.4"),
    "a label that is no version": ("12.1", "unknown", "unknown", None),
}


@pytest.mark.parametrize(("cuda", "driver", "newest", "problem"), CASES.values(), ids=CASES.keys())
def test_a_driver_is_new_enough_or_the_problem_is_told(
    cuda: str, driver: str | None, newest: str | None, problem: str | None
) -> None:
    assert driver_problem(cuda, node(driver=driver, driver_cuda=newest)) == problem


OLD, NEW, UNLABELLED = (node(name=name, driver=version) for name, version in [("a", "470"), ("b", "525"), ("c", None)])


def rejections(image: str, *nodes: NodeState) -> tuple[Rejection, ...]:
    seen = snapshot(cluster_state(onprem_cluster(), nodes=nodes))
    decision = place(job_spec(image=image), seen, placement_policy())
    return decision.verdicts[0].rejections


def test_a_pool_of_old_drivers_is_left_out_with_the_reason_until_somebody_renews_them() -> None:
    reason = "CUDA 12.1 needs driver 525 or newer, node a has 470; no other of the pool's 2 nodes does better"
    assert rejections("train:torch2.1-cuda12.1", OLD, replace(OLD, name="b")) == (
        Rejection(rule="driver", reason=reason, waits=True),
    )


@pytest.mark.parametrize("other", [NEW, UNLABELLED], ids=["a new one", "one without labels"])
def test_one_node_that_may_run_it_is_enough(other: NodeState) -> None:
    assert rejections("train:torch2.1-cuda12.1", OLD, other) == ()


@pytest.mark.parametrize("image", ["train:torch2.1-cuda11.8", "train:v1"])
def test_an_image_that_the_old_driver_runs_or_that_says_nothing_is_placed(image: str) -> None:
    assert rejections(image, OLD) == ()


def test_nodes_with_too_old_a_driver_are_no_room() -> None:
    job = job_spec(image="train:torch2.1-cuda12.1", gpus_per_node=8, nodes=2)
    seen = snapshot(cluster_state(onprem_cluster(pools=(node_pool(max_nodes=2),)), nodes=(OLD, NEW)))
    (rejection,) = place(job, seen, placement_policy()).verdicts[0].rejections
    assert rejection.rule == "full"
    assert "1 of them fit now (nodes with too old a driver left out: a)" in rejection.reason
    told_nothing = place(replace(job, image="train:v1"), seen, placement_policy()).verdicts[0]
    assert told_nothing.rejections == ()
