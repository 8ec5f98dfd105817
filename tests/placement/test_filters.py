"""Every reason against a candidate, and whether waiting can lift it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from spillway.model import Billing, Candidate, Cluster, NodePool, QuotaShare, Rejection, Tier
from spillway.placement.policy import place
from spillway.testing.builders import (
    NOW,
    candidate,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    cooling,
    job_spec,
    node_pool,
    nodes_of,
    onprem_cluster,
    placement_policy,
    pod,
    reservation,
    snapshot,
)

ONPREM = candidate()
ON_DEMAND = candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
SPOT = candidate(cluster="cloud", pool="h100", billing=Billing.SPOT)
HALF_AND_HALF = placement_policy(
    quotas={
        "research": QuotaShare(onprem=Decimal("0.25"), cloud=Decimal("0.5")),
        "production": QuotaShare(onprem=Decimal("0.5"), cloud=Decimal("0.5")),
    }
)


def rejections(where: Candidate, *, job: Any = None, seen: Any = None, policy: Any = None) -> tuple[Rejection, ...]:
    decision = place(job or job_spec(), seen or snapshot(), policy or placement_policy())
    return next(verdict.rejections for verdict in decision.verdicts if verdict.candidate == where)


def onprem(pool: NodePool, **state: Any) -> Any:
    return snapshot(cluster_state(onprem_cluster(pools=(pool,)), **state))


# job, snapshot, policy; the candidate and all that is said against it: rule, reason, whether it waits
CASES: dict[str, tuple[Any, Any, Any, Candidate, list[tuple[str, str, bool]]]] = {
    "nothing": (None, None, None, ONPREM, []),
    "gpu model": (
        job_spec(gpu_model="H100"),
        None,
        None,
        ONPREM,
        [("gpu-model", "needs H100, the pool has A100", False)],
    ),
    "gpu model that is there": (job_spec(gpu_model="A100"), None, None, ONPREM, []),
    "gpu memory": (
        job_spec(gpu_memory_gib=96),
        None,
        None,
        ONPREM,
        [("gpu-memory", "needs 96 GiB a GPU, the pool's have 80", False)],
    ),
    "gpu memory that is just there": (job_spec(gpu_memory_gib=80), None, None, ONPREM, []),
    "node shape": (
        job_spec(gpus_per_node=16),
        None,
        None,
        ONPREM,
        [("node-shape", "needs 16 GPUs on one node, the pool's have 8", False)],
    ),
    "no GPUs": (
        job_spec(gpus_per_node=0),
        None,
        None,
        ONPREM,
        [("node-shape", "needs at least 1 node with 1 GPU, asks for 1 with 0", False)],
    ),
    "declared maximum": (
        job_spec(gpus_per_node=5, nodes=5),
        None,
        None,
        ONPREM,
        [
            ("declared-maximum", "needs 5 x 5 GPUs, the pool never has more than 4 x 8", False),
            ("full", "needs 5 x 5 GPUs, 4 of them fit now; the largest free block is 8", True),
        ],
    ),
    "residency": (
        job_spec(tier=Tier.CORE),
        None,
        None,
        ON_DEMAND,
        [("residency", "its data is of tier core, the site may store public", False)],
    ),
    "residency of core data at home": (job_spec(tier=Tier.CORE), None, None, ONPREM, []),
    "public data where core data may be": (
        job_spec(tier=Tier.PUBLIC),
        snapshot(cluster_state(onprem_cluster(residency=frozenset({Tier.CORE})))),
        None,
        ONPREM,
        [],
    ),
    "a site that may store nothing": (
        job_spec(tier=Tier.PUBLIC),
        snapshot(cluster_state(onprem_cluster(residency=frozenset()))),
        None,
        ONPREM,
        [("residency", "its data is of tier public, the site may store none", False)],
    ),
    "latency": (
        job_spec(latency_sensitive=True),
        None,
        None,
        ON_DEMAND,
        [("latency", "is latency-sensitive, which only on-premises serves", False)],
    ),
    "latency on-premises": (job_spec(latency_sensitive=True), None, None, ONPREM, []),
    "spot": (None, None, None, SPOT, [("interruption", "may not be interrupted (spot_ok is false)", False)]),
    "spot for a job that may be interrupted": (job_spec(spot_ok=True), None, None, SPOT, []),
    "department without a quota": (
        job_spec(department="marketing"),
        None,
        HALF_AND_HALF,
        ONPREM,
        [("quota", "department 'marketing' has no quota; departments with one: production, research", False)],
    ),
    "quota that is never enough": (
        job_spec(gpus_per_node=8, nodes=3),
        None,
        HALF_AND_HALF,
        ONPREM,
        [("quota", "needs 24 GPUs, 'research' never has more than 16 onprem (8 of its own, 8 shared)", False)],
    ),
    "quota that is used up": (
        job_spec(gpus_per_node=5),
        snapshot(reservations=(reservation(gpus_per_node=4, nodes=3),)),
        HALF_AND_HALF,
        ONPREM,
        [("quota", "needs 5 GPUs, 'research' has 4 of 16 onprem left", True)],
    ),
    "quota that is just enough": (
        job_spec(gpus_per_node=4),
        snapshot(reservations=(reservation(gpus_per_node=4, nodes=3),)),
        HALF_AND_HALF,
        ONPREM,
        [],
    ),
    "quota of the other kind of site": (
        job_spec(gpus_per_node=5),
        snapshot(reservations=(reservation(gpus_per_node=4, nodes=3),)),
        HALF_AND_HALF,
        ON_DEMAND,
        [],
    ),
    "unreachable": (
        None,
        snapshot(
            cluster_state(cloud_cluster()),
            unreachable={"onprem": "connect timeout after 20 s"},
            unreachable_clusters=(onprem_cluster(),),
        ),
        None,
        ONPREM,
        [("unreachable", "the cluster cannot be seen: connect timeout after 20 s", True)],
    ),
    "cool-down": (
        None,
        snapshot(cool_downs=(cooling(), cooling(until=NOW + timedelta(minutes=1), reason="older"))),
        None,
        ONPREM,
        [("cool-down", "is avoided until 2026-01-05T12:05:00+00:00: lost its node", True)],
    ),
    "cool-down that is over": (None, snapshot(cool_downs=(cooling(until=NOW),)), None, ONPREM, []),
    "cool-down of another pool": (None, snapshot(cool_downs=(cooling(pool="v100"),)), None, ONPREM, []),
    "full": (
        job_spec(gpus_per_node=8),
        onprem(node_pool(max_nodes=1), pods=(pod(gpus=1),)),
        None,
        ONPREM,
        [("full", "needs 1 x 8 GPUs, 0 of them fit now; the largest free block is 7", True)],
    ),
    "fewer nodes than declared": (
        job_spec(gpus_per_node=8),
        onprem(node_pool(max_nodes=2), nodes=nodes_of(node_pool(), 1), pods=(pod(gpus=1),)),
        None,
        ONPREM,
        [("waiting-for-nodes", "waiting for nodes in pool a100", True)],
    ),
    "no node at all": (
        None,
        onprem(node_pool(), nodes=()),
        None,
        ONPREM,
        [("waiting-for-nodes", "waiting for nodes in pool a100", True)],
    ),
    "a gang that the missing nodes would complete": (
        job_spec(gpus_per_node=8, nodes=3),
        onprem(node_pool(max_nodes=3), nodes=nodes_of(node_pool(), 1)),
        None,
        ONPREM,
        [("waiting-for-nodes", "waiting for nodes in pool a100", True)],
    ),
    "a gang that the missing nodes would not complete": (
        job_spec(gpus_per_node=8, nodes=3),
        onprem(node_pool(max_nodes=3), nodes=nodes_of(node_pool(), 2), pods=(pod(gpus=1),)),
        None,
        ONPREM,
        [("full", "needs 3 x 8 GPUs, 1 of them fit now; the largest free block is 8", True)],
    ),
}


@pytest.mark.parametrize(("job", "seen", "policy", "where", "said"), CASES.values(), ids=CASES.keys())
def test_what_is_said_against_a_candidate(
    job: Any, seen: Any, policy: Any, where: Candidate, said: list[tuple[str, str, bool]]
) -> None:
    assert rejections(where, job=job, seen=seen, policy=policy) == tuple(
        Rejection(rule=rule, reason=reason, waits=waits) for rule, reason, waits in said
    )


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        (Decimal("NaN"), "no price to compare: NaN declared"),
        (Decimal("Infinity"), "no price to compare: Infinity declared"),
        (Decimal(-1), "no price to compare: -1 declared"),
        (Decimal(0), "no price to compare: 0 declared"),
        (None, "no price to compare: none is declared"),
    ],
)
def test_a_price_that_cannot_be_believed_is_never_free(price: Decimal | None, reason: str) -> None:
    seen = with_prices(cloud_cluster(), {Billing.ON_DEMAND: price})
    decision = place(job_spec(), seen, placement_policy())
    [verdict] = decision.verdicts
    assert verdict.rejections == (Rejection(rule="price", reason=reason, waits=False),)
    assert (decision.chosen, decision.possible, verdict.scores, verdict.price_per_gpu_hour) == (None, False, {}, None)


def test_a_pool_without_prices_is_in_the_table_with_the_reason() -> None:
    [verdict] = place(job_spec(), with_prices(onprem_cluster(), {}), placement_policy()).verdicts
    assert verdict.candidate == candidate(pool="h100", billing=Billing.OWNED)
    assert verdict.rejections == (Rejection(rule="price", reason="no price to compare: none is declared", waits=False),)


def test_an_owned_gpu_that_costs_nothing_may_win() -> None:
    decision = place(job_spec(), with_prices(onprem_cluster(), {Billing.OWNED: Decimal(0)}), placement_policy())
    assert decision.chosen == candidate(pool="h100")


def test_several_reasons_are_all_told() -> None:
    said = rejections(SPOT, job=job_spec(tier=Tier.CORE, latency_sensitive=True, gpu_model="A100"))
    assert [rejection.rule for rejection in said] == ["gpu-model", "residency", "latency", "interruption"]


def with_prices(cluster: Cluster, prices: Any) -> Any:
    pool = cloud_pool(prices_per_gpu_hour=prices)
    return snapshot(cluster_state(onprem_cluster(name=cluster.name, kind=cluster.kind, pools=(pool,))))
