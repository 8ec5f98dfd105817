"""What is said against a pool whose nodes are too small, too few or in use, and whether waiting can lift it."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.model import JobSpec, NodePool, Rejection, Snapshot
from spillway.placement.policy import place
from spillway.testing.builders import (
    cluster_state,
    job_spec,
    node,
    node_pool,
    nodes_of,
    onprem_cluster,
    placement_policy,
    pod,
    snapshot,
)


def onprem(pool: NodePool, **state: Any) -> Snapshot:
    return snapshot(cluster_state(onprem_cluster(pools=(pool,)), **state))


# job, snapshot; all that is said against the pool: rule, reason, whether it waits
CASES: dict[str, tuple[JobSpec, Snapshot, list[tuple[str, str, bool]]]] = {
    "node shape": (
        job_spec(gpus_per_node=16),
        onprem(node_pool()),
        [("node-shape", "needs 16 GPUs on one node, the pool's have 8", False)],
    ),
    "no GPUs": (
        job_spec(gpus_per_node=0),
        onprem(node_pool()),
        [("cpu-work", "needs no GPU, the pool's nodes have 8; only pools without GPUs take it", False)],
    ),
    "declared maximum": (
        job_spec(gpus_per_node=5, nodes=5),
        onprem(node_pool()),
        [
            ("declared-maximum", "needs 5 x 5 GPUs, the pool never has more than 4 x 8", False),
            ("full", "needs 5 x 5 GPUs, 4 of them fit now; the largest free block is 8", True),
        ],
    ),
    "full": (
        job_spec(gpus_per_node=8),
        onprem(node_pool(max_nodes=1), pods=(pod(gpus=1),)),
        [("full", "needs 1 x 8 GPUs, 0 of them fit now; the largest free block is 7", True)],
    ),
    "cores": (
        job_spec(gpus_per_node=2, cpu_cores=5, memory_gib=2),
        onprem(node_pool(max_nodes=1), nodes=(node(cpu_millicores=4500, memory_mib=16384),)),
        [
            (
                "full",
                "needs 1 x 2 GPUs, 0 of them fit now; 4 by GPUs alone, but each needs 5 cores and 2 GiB beside them",
                True,
            )
        ],
    ),
    "cores that are just there": (
        job_spec(gpus_per_node=2, cpu_cores=4.5),
        onprem(node_pool(max_nodes=1), nodes=(node(cpu_millicores=4500, memory_mib=16384),)),
        [],
    ),
    "more memory than an empty node has": (
        job_spec(memory_gib=512),
        onprem(node_pool(memory_gib_per_node=400.0)),
        [("node-shape", "needs 1 cores and 512 GiB a node, the pool's have ? cores and 400 GiB", False)],
    ),
    "fewer nodes than declared": (
        job_spec(gpus_per_node=8),
        onprem(node_pool(max_nodes=2), nodes=nodes_of(node_pool(), 1), pods=(pod(gpus=1),)),
        [("waiting-for-nodes", "waiting for nodes in pool a100", True)],
    ),
    "no node at all": (
        job_spec(),
        onprem(node_pool(), nodes=()),
        [("waiting-for-nodes", "waiting for nodes in pool a100", True)],
    ),
    "a gang that the missing nodes would complete": (
        job_spec(gpus_per_node=8, nodes=3),
        onprem(node_pool(max_nodes=3), nodes=nodes_of(node_pool(), 1)),
        [("waiting-for-nodes", "waiting for nodes in pool a100", True)],
    ),
    "a gang that the missing nodes would not complete": (
        job_spec(gpus_per_node=8, nodes=3),
        onprem(node_pool(max_nodes=3), nodes=nodes_of(node_pool(), 2), pods=(pod(gpus=1),)),
        [("full", "needs 3 x 8 GPUs, 1 of them fit now; the largest free block is 8", True)],
    ),
}


@pytest.mark.parametrize(("job", "seen", "said"), CASES.values(), ids=CASES.keys())
def test_what_is_said_against_a_pool(job: JobSpec, seen: Snapshot, said: list[tuple[str, str, bool]]) -> None:
    [verdict] = place(job, seen, placement_policy()).verdicts
    assert verdict.rejections == tuple(Rejection(rule=rule, reason=reason, waits=waits) for rule, reason, waits in said)
