"""The decision: deterministic, rebuilt from its stored inputs, and never more than fits."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway import codec
from spillway.model import (
    Billing,
    Candidate,
    JobSpec,
    NodePool,
    PlacementDecision,
    PlacementPolicy,
    PlacementVerdict,
    Priority,
    Reservation,
    Snapshot,
    Tier,
)
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
        job="digits", taken_at=NOW, chosen=candidate(), possible=True, verdicts=decision.verdicts, unreachable={}
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


# -- properties -------------------------------------------------------------------------------------------------------

POOLS = (
    node_pool(max_nodes=3),
    node_pool(name="v100", gpu_model="V100", gpu_memory_gib=32, gpus_per_node=4, max_nodes=2),
)
CLOUD_POOL = cloud_pool(
    max_nodes=2,
    prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8), Billing.RESERVED: Decimal(8), Billing.SPOT: Decimal("2.8")},
)
CLUSTERS = (onprem_cluster(pools=POOLS), cloud_cluster(pools=(CLOUD_POOL,)))

gpus = st.integers(min_value=1, max_value=8)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Two clusters, some nodes of which run, with pods that are ours, foreign, pending or on a node."""
    seen, unseen = [], []
    for cluster in CLUSTERS:
        if draw(st.integers(0, 9)) == 0:
            unseen.append(cluster)
            continue
        nodes = [
            replace(node, ready=draw(st.integers(0, 5)) > 0)
            for pool in cluster.pools
            for node in nodes_of(pool, draw(st.integers(0, pool.max_nodes)))
        ]
        names = [*(node.name for node in nodes), None]
        pods = [
            pod(
                name=f"p{index}",
                gpus=draw(gpus),
                node=draw(st.sampled_from(names)),
                attempt=draw(st.sampled_from([None, "r-0", "r-1", "r-2"])),
            )
            for index in range(draw(st.integers(0, 4)))
        ]
        seen.append(cluster_state(cluster, nodes=nodes, pods=pods))
    places = [(cluster.name, pool.name) for cluster in CLUSTERS for pool in cluster.pools]
    promised = [
        reservation(
            attempt=f"r-{index}",
            cluster=where[0],
            pool=where[1],
            gpus_per_node=draw(gpus),
            nodes=draw(st.integers(1, 2)),
        )
        for index, where in enumerate(draw(st.lists(st.sampled_from(places), max_size=3)))
    ]
    return snapshot(
        unreachable={cluster.name: "no answer" for cluster in unseen},
        unreachable_clusters=tuple(unseen),
        clusters=tuple(seen),
        reservations=tuple(promised),
        cool_downs=tuple(draw(st.lists(st.just(cooling()), max_size=1))),
        datasets_present=frozenset(draw(st.sets(st.sampled_from([("digits", "onprem"), ("digits", "cloud")])))),
    )


jobs = st.builds(
    job_spec,
    priority=st.sampled_from(Priority),
    gpus_per_node=gpus,
    nodes=st.integers(1, 4),
    gpu_memory_gib=st.sampled_from([0, 80]),
    dataset=st.sampled_from([None, "digits"]),
    spot_ok=st.booleans(),
    latency_sensitive=st.booleans(),
    tier=st.sampled_from(Tier),
)


def shuffled(seen: Snapshot, order: random.Random) -> Snapshot:
    """The same facts in another order."""
    clusters = [
        replace(
            state,
            cluster=replace(state.cluster, pools=tuple(_shuffled_prices(pool, order) for pool in pools)),
            nodes=tuple(order.sample(state.nodes, len(state.nodes))),
            pods=tuple(order.sample(state.pods, len(state.pods))),
        )
        for state in order.sample(seen.clusters, len(seen.clusters))
        for pools in [order.sample(state.cluster.pools, len(state.cluster.pools))]
    ]
    return replace(
        seen,
        clusters=tuple(clusters),
        reservations=tuple(order.sample(seen.reservations, len(seen.reservations))),
    )


def _shuffled_prices(pool: NodePool, order: random.Random) -> NodePool:
    prices = list(pool.prices_per_gpu_hour.items())
    return replace(pool, prices_per_gpu_hour=dict(order.sample(prices, len(prices))))


@given(job=jobs, seen=snapshots(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_snapshot_does_not_matter(job: JobSpec, seen: Snapshot, order: random.Random) -> None:
    assert place(job, shuffled(seen, order), POLICY) == place(job, seen, POLICY)


@given(job=jobs, seen=snapshots())
def test_the_decision_is_rebuilt_from_its_stored_inputs(job: JobSpec, seen: Snapshot) -> None:
    decision = place(job, seen, POLICY)
    stored = json.dumps({"job": codec.encode(job), "snapshot": codec.encode(seen), "policy": codec.encode(POLICY)})
    read = json.loads(stored)
    rebuilt = place(
        codec.decode(JobSpec, read["job"]),
        codec.decode(Snapshot, read["snapshot"]),
        codec.decode(PlacementPolicy, read["policy"]),
    )
    assert rebuilt == decision
    assert codec.decode(PlacementDecision, json.loads(json.dumps(codec.encode(decision)))) == decision


@given(job=jobs, seen=snapshots())
def test_the_chosen_place_has_nodes_for_every_pod(job: JobSpec, seen: Snapshot) -> None:
    chosen = place(job, seen, POLICY).chosen
    if chosen is None:
        return
    [state] = [state for state in seen.clusters if state.cluster.name == chosen.cluster]
    taken = Counter[str]()
    for running in state.pods:
        if running.node is not None:
            taken[running.node] += running.gpus
    free = [
        max(0, node.allocatable_gpus - taken[node.name])
        for node in state.nodes
        if node.pool == chosen.pool and node.ready and node.schedulable
    ]
    assert sum(gpus // job.gpus_per_node for gpus in free) >= job.nodes


@given(queue=st.lists(jobs, max_size=12))
def test_jobs_placed_one_after_the_other_never_exceed_a_node(queue: list[JobSpec]) -> None:
    """Each reservation's pods are put on nodes as the cluster's scheduler would, and every one of them finds a node."""
    seen = snapshot(*(cluster_state(cluster) for cluster in CLUSTERS))
    promised: list[Reservation] = []
    for number, job in enumerate(queue):
        chosen = place(job, replace(seen, reservations=tuple(promised)), POLICY).chosen
        if chosen is not None:
            promised.append(_reserved(f"j{number:02}-1", job, chosen))
    free = {(s.cluster.name, n.pool, n.name): n.allocatable_gpus for s in seen.clusters for n in s.nodes}
    for held in promised:
        for _ in range(held.nodes):
            fitting = [k for k, f in free.items() if k[:2] == (held.cluster, held.pool) and f >= held.gpus_per_node]
            free[min(fitting)] -= held.gpus_per_node
    assert all(gpus >= 0 for gpus in free.values())


@given(seen=snapshots(), job=jobs)
def test_a_reservation_and_its_pod_on_the_node_it_was_counted_on_are_one(seen: Snapshot, job: JobSpec) -> None:
    """Nothing changes for others when the pod of a reservation appears: pending, then on the first node that fits."""
    empty = replace(
        seen, reservations=(), cool_downs=(), clusters=tuple(replace(state, pods=()) for state in seen.clusters)
    )
    first = place(job, empty, POLICY).chosen
    if first is None or job.nodes > 1:
        return
    held = _reserved("first-1", job, first)
    promised = replace(empty, reservations=(held,))
    [state] = [state for state in empty.clusters if state.cluster.name == first.cluster]
    usable = [n.name for n in state.nodes if n.pool == first.pool and n.ready and n.allocatable_gpus >= job.gpus]
    for where in (None, min(usable)):
        its_pod = pod(name="first-1", gpus=job.gpus, attempt="first-1", node=where)
        others = tuple(other for other in empty.clusters if other is not state)
        appeared = replace(promised, clusters=(*others, replace(state, pods=(its_pod,))))
        assert place(job_spec(gpus_per_node=1), appeared, POLICY) == place(job_spec(gpus_per_node=1), promised, POLICY)
        assert place(job, appeared, POLICY) == place(job, promised, POLICY)


def _reserved(attempt: str, job: JobSpec, chosen: Candidate) -> Reservation:
    return reservation(
        attempt=attempt,
        department=job.department,
        cluster=chosen.cluster,
        pool=chosen.pool,
        billing=chosen.billing,
        gpus_per_node=job.gpus_per_node,
        nodes=job.nodes,
    )
