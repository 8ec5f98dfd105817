"""The decision: every verdict, what waits and what never fits, and which of equals is chosen."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from spillway.model import (
    Billing,
    JobSpec,
    PlacementDecision,
    PlacementVerdict,
    Snapshot,
    Tier,
)
from spillway.placement.policy import place
from spillway.placement.rules import RULES
from spillway.testing.builders import (
    NOW,
    candidate,
    cloud_cluster,
    cluster_state,
    cooling,
    job_spec,
    onprem_cluster,
    placement_policy,
    pod,
    snapshot,
)

POLICY = placement_policy()


def test_a_decision_holds_every_verdict_in_the_order_of_preference() -> None:
    decision = place(job_spec(), snapshot(), POLICY)
    assert decision.verdicts[0] == PlacementVerdict(
        candidate=candidate(),
        rejections=(),
        scores={"qos": 1.0, "cost": 0.6875, "affinity": 1.0},
        total=0.953125,
        price_per_gpu_hour=Decimal("2.5"),
    )
    assert decision == PlacementDecision(
        job="digits",
        taken_at=NOW,
        chosen=candidate(),
        possible=True,
        verdicts=decision.verdicts,
        unreachable={},
        rules=RULES,
    )
    assert [(verdict.candidate.billing, bool(verdict.rejections)) for verdict in decision.verdicts] == [
        (Billing.OWNED, False),
        (Billing.ON_DEMAND, False),
        (Billing.SPOT, True),
    ]


def four_nodes_with_two_free() -> Snapshot:
    onprem = cluster_state(onprem_cluster(), pods=[pod(name=f"p{i}", gpus=6, node=f"a100-{i}") for i in range(4)])
    return snapshot(onprem, cluster_state(cloud_cluster()))


def test_a_job_that_needs_one_big_node_is_not_placed_on_the_sum_of_small_blocks() -> None:
    decision = place(job_spec(gpus_per_node=8), four_nodes_with_two_free(), POLICY)
    assert decision.chosen == candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
    [reason] = [v.rejections[0].reason for v in decision.verdicts if v.candidate == candidate()]
    assert reason == "needs 1 x 8 GPUs, 0 of them fit now; the largest free block is 2"


def test_a_gang_of_pods_that_fit_the_small_blocks_is_placed_whole_or_not_at_all() -> None:
    assert place(job_spec(gpus_per_node=2, nodes=4), four_nodes_with_two_free(), POLICY).chosen == candidate()
    five = place(job_spec(gpus_per_node=2, nodes=5), four_nodes_with_two_free(), POLICY)
    assert five.chosen == candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)


def test_a_big_pod_that_waits_does_not_block_a_small_job() -> None:
    seen = four_nodes_with_two_free()
    onprem = replace(seen.clusters[0], pods=(*seen.clusters[0].pods, pod(name="big", gpus=8)))
    assert place(job_spec(), replace(seen, clusters=(onprem,)), POLICY).chosen == candidate()


FULL = snapshot(cluster_state(onprem_cluster(), pods=[pod(name=f"p{i}", gpus=8, node=f"a100-{i}") for i in range(4)]))
UNSEEN = snapshot(
    cluster_state(cloud_cluster()),
    unreachable={"onprem": "connection refused"},
    unreachable_clusters=(onprem_cluster(),),
)


@pytest.mark.parametrize(
    ("job", "seen", "possible"),
    [
        (job_spec(), FULL, True),
        (job_spec(), snapshot(cluster_state(onprem_cluster(), nodes=())), True),
        (job_spec(), snapshot(cluster_state(onprem_cluster()), cool_downs=(cooling(),)), True),
        (job_spec(tier=Tier.CORE), UNSEEN, True),
        (job_spec(gpus_per_node=9, tier=Tier.CORE), UNSEEN, False),
        (job_spec(), snapshot(cluster_state(cloud_cluster(pools=()))), False),
        (job_spec(gpus_per_node=16), snapshot(), False),
        (job_spec(nodes=65), snapshot(), False),
        (job_spec(gpu_model="B200"), snapshot(), False),
        (job_spec(gpu_memory_gib=141), snapshot(), False),
        (job_spec(tier=Tier.CORE), snapshot(cluster_state(cloud_cluster())), False),
        (job_spec(department="marketing"), snapshot(), False),
        (job_spec(gpus_per_node=0), snapshot(), False),
    ],
    ids=[
        "full", "no node runs yet", "cooling", "its cluster cannot be seen", "too big for the one that cannot be seen",
        "no pool", "shape", "more GPUs than anywhere", "model", "memory", "residency", "no quota", "no GPUs",
    ],
)  # fmt: skip
def test_waiting_is_told_from_never(job: JobSpec, seen: Snapshot, possible: bool) -> None:
    decision = place(job, seen, POLICY)
    assert (decision.chosen, decision.possible) == (None, possible)


def test_a_cluster_of_which_nothing_is_known_leaves_everything_possible() -> None:
    decision = place(job_spec(), replace(UNSEEN, unreachable_clusters=(), clusters=()), POLICY)
    assert (decision.chosen, decision.possible) == (None, True)
    assert decision.unreachable == {"onprem": "connection refused"}


def test_equal_totals_go_to_the_cheaper_and_then_by_name() -> None:
    indifferent = placement_policy(weights={"qos": Decimal(0), "cost": Decimal(0), "affinity": Decimal(1)})
    seen = snapshot(*(cluster_state(cloud_cluster(name=cluster)) for cluster in ("c", "b", "a")))
    decision = place(job_spec(spot_ok=True), seen, indifferent)
    assert [(v.candidate.cluster, v.candidate.billing.value) for v in decision.verdicts] == [
        ("a", "spot"), ("b", "spot"), ("c", "spot"), ("a", "on-demand"), ("b", "on-demand"), ("c", "on-demand"),
    ]  # fmt: skip


def test_what_waits_is_listed_before_what_never_fits() -> None:
    seen = snapshot(cluster_state(onprem_cluster()), cluster_state(cloud_cluster(), nodes=()))
    verdicts = place(job_spec(gpu_model="H100", spot_ok=True), seen, POLICY).verdicts
    assert [verdict.candidate.billing.value for verdict in verdicts] == ["spot", "on-demand", "owned"]
    assert verdicts[2].total > verdicts[0].total


def test_weights_count_relative_to_each_other() -> None:
    ten_times = placement_policy(weights={name: weight * 10 for name, weight in POLICY.weights.items()})
    assert place(job_spec(), snapshot(), ten_times) == place(job_spec(), snapshot(), POLICY)
