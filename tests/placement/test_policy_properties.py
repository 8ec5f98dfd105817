"""What holds of every decision, whatever the clusters look like."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spillway import codec
from spillway.model import (
    GPU_RESOURCE,
    Billing,
    BudgetState,
    Candidate,
    CloudAccess,
    Cluster,
    DatasetFacts,
    DatasetUse,
    GpuShare,
    JobSpec,
    NodePool,
    OffPeak,
    PlacementDecision,
    PlacementPolicy,
    Priority,
    QueuedRun,
    QuotaShare,
    Reservation,
    ReservedContract,
    Schedule,
    Snapshot,
    Tier,
)
from spillway.placement.context import index
from spillway.placement.explain import clusters, why_not
from spillway.placement.policy import choose, place
from spillway.placement.queueing import PATIENCE
from spillway.placement.rules import BY_BILLING, FILTERS, OF_CLUSTER, OF_POOL, OF_QUEUE, SHAPE
from spillway.quota import department_gpus, gpus_in_use
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    cooling,
    cpu_pool,
    job_spec,
    node_pool,
    nodes_of,
    onprem_cluster,
    placement_policy,
    pod,
    queued_run,
    reservation,
    snapshot,
)

POLICY = placement_policy(
    quotas={
        "research": QuotaShare(onprem=Decimal("0.5"), cloud=Decimal("0.6")),
        "vision": QuotaShare(onprem=Decimal("0.3"), cloud=Decimal("0.4")),
    },
    borrowing=True,
    cloud_access={"research": CloudAccess(clusters=None, billing=frozenset(Billing))},
)

HALVES = GpuShare(resource="nvidia.com/mig-3g.40gb", per_gpu=2, memory_gib=40)


def seldom(value: Any, *, usual: Any) -> st.SearchStrategy[Any]:
    """What rules out so many places that most examples must be without it, or nothing were ever placed."""
    return st.sampled_from([usual, usual, usual, usual, value])


POOLS = (
    node_pool(max_nodes=3),
    node_pool(name="v100", gpu_model="V100", gpu_memory_gib=32, gpus_per_node=4, max_nodes=2),
    node_pool(name="halves", gpus_per_node=2, max_nodes=1, gpu_share=HALVES),
    cpu_pool(max_nodes=2),
)
NIGHT = OffPeak(
    begins=timedelta(hours=22),
    ends=timedelta(hours=6),
    time_zone="Europe/Berlin",
    prices_per_hour={Billing.ON_DEMAND: Decimal(5)},
)
CLOUD_POOL = cloud_pool(
    reserved=ReservedContract(gpus=8),
    off_peak=NIGHT,
    max_nodes=2,
    prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8), Billing.RESERVED: Decimal(8), Billing.SPOT: Decimal("2.8")},
)
CLUSTERS = (onprem_cluster(pools=POOLS), cloud_cluster(pools=(CLOUD_POOL,)))
PLACES = [(cluster.name, pool.name) for cluster in CLUSTERS for pool in cluster.pools]
gpus = st.integers(min_value=1, max_value=8)
waiting = st.builds(
    queued_run,
    run=st.sampled_from(["q-1", "q-2"]),
    since=st.sampled_from([NOW, NOW - PATIENCE]),
    nodes=st.integers(1, 2),
    gpus_per_node=gpus,
    places=st.frozensets(st.sampled_from(PLACES), min_size=1),
)

schedules = st.sampled_from(
    [
        None,
        *(
            Schedule(
                began_at=NOW,
                deadline=NOW + slack * timedelta(hours=10),
                work=timedelta(hours=10),
                done=timedelta(),
                restart=timedelta(minutes=5),
            )
            for slack in (1, 3)
        ),
    ]
)
BUDGETS = [
    (),
    *(
        (
            BudgetState(
                department="research",
                month=f"{NOW:%Y-%m}",
                starts_at=NOW - timedelta(days=4),
                ends_at=NOW + timedelta(days=27),
                limit=limit,
                booked=Decimal(60),
                accrued=Decimal(0),
                reserved=Decimal(20),
            ),
        )
        for limit in (Decimal(10**6), Decimal(100))
    ),
]
DIGITS, FACES = DatasetUse(name="digits"), DatasetUse(name="faces")
DATASETS = {
    "digits": DatasetFacts(home="onprem", size_bytes=10**12, public_bytes=10**10, remote_read=True),
    "faces": DatasetFacts(home="cloud", size_bytes=5 * 10**10),
}
COPIES = [(dataset, site) for dataset in DATASETS for site in ("onprem", "cloud")]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Two clusters, some nodes of which run, with pods that are ours, foreign, pending or on a node."""
    seen, unseen = [], []
    for cluster in CLUSTERS:
        if draw(seldom(True, usual=False)):
            unseen.append(cluster)
            continue
        nodes = [
            replace(node, ready=draw(seldom(False, usual=True)))
            for pool in cluster.pools
            for node in nodes_of(pool, draw(st.sampled_from([pool.max_nodes, *range(pool.max_nodes)])))
        ]
        pods = [
            pod(
                name=f"p{index}",
                gpus=draw(gpus),
                gpu_resource=draw(st.sampled_from([GPU_RESOURCE, HALVES.resource])),
                node=draw(st.sampled_from([*(node.name for node in nodes), None])),
                attempt=draw(st.sampled_from([None, "r-0", "r-1", "r-2"])),
            )
            for index in range(draw(seldom(4, usual=1)))
        ]
        seen.append(cluster_state(cluster, nodes=nodes, pods=pods))
    promised = [
        reservation(
            attempt=f"r-{index}",
            cluster=where[0],
            pool=where[1],
            gpus_per_node=draw(gpus),
            nodes=draw(st.integers(1, 2)),
            ends_at=draw(st.sampled_from([None, NOW + timedelta(hours=1), NOW + timedelta(hours=2)])),
        )
        for index, where in enumerate(draw(st.lists(st.sampled_from(PLACES), max_size=3)))
    ]
    return snapshot(
        taken_at=draw(st.sampled_from([NOW, NOW + timedelta(hours=10)])),
        unreachable={cluster.name: "no answer" for cluster in unseen},
        unreachable_clusters=tuple(unseen),
        clusters=tuple(seen),
        reservations=tuple(promised),
        cool_downs=draw(seldom((cooling(),), usual=())),
        queue=tuple(draw(st.lists(waiting, max_size=2, unique_by=attrgetter("run")))),
        datasets=draw(st.sampled_from([{}, {"digits": DATASETS["digits"]}, DATASETS])),
        link_rates=draw(st.sampled_from([{}, {"cloud": 5e7}])),
        datasets_present=frozenset(draw(st.sets(st.sampled_from(COPIES)))),
        budgets=draw(st.sampled_from(BUDGETS)),
        schedule=draw(schedules),
    )


shapes = st.one_of(
    st.fixed_dictionaries({"gpus_per_node": gpus, "nodes": seldom(3, usual=1)}),
    st.just({"gpus_per_node": 1, "gpu_fraction": HALVES.fraction}),
    st.fixed_dictionaries(
        {"gpus_per_node": st.just(0), "cpu_cores": st.sampled_from([1.0, 20.0]), "nodes": st.integers(1, 3)}
    ),
)
jobs = st.builds(
    lambda shape, **fields: job_spec(**fields | shape),
    shapes,
    priority=st.sampled_from(Priority),
    gpu_model=seldom("V100", usual=None),
    gpu_memory_gib=seldom(80, usual=0),
    cpu_cores=seldom(64.0, usual=1.0),
    memory_gib=seldom(512.0, usual=1.0),
    image=st.sampled_from(["train:v1", "train:cuda12.4"]),
    department=seldom("vision", usual="research"),
    datasets=st.sampled_from([(), (DIGITS,), (DIGITS, FACES), (replace(DIGITS, part=Tier.PUBLIC), FACES)]),
    spot_ok=st.booleans(),
    latency_sensitive=seldom(True, usual=False),
    off_peak_ok=seldom(True, usual=False),
    expected_duration=st.sampled_from([None, timedelta(hours=1), timedelta(hours=8)]),
    tier=seldom(Tier.CORE, usual=Tier.PUBLIC),
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
    prices = pool.prices_per_gpu_hour
    return replace(pool, prices_per_gpu_hour={b: prices[b] for b in order.sample(sorted(prices), len(prices))})


@given(job=jobs, seen=snapshots(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_snapshot_does_not_matter(job: JobSpec, seen: Snapshot, order: random.Random) -> None:
    assert place(job, shuffled(seen, order), POLICY) == place(job, seen, POLICY)


@settings(max_examples=1000)
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
def test_why_not_there_is_answered_for_every_place_of_every_cluster(job: JobSpec, seen: Snapshot) -> None:
    decision = place(job, seen, POLICY)
    said = [line for cluster in clusters(seen) for line in why_not(decision, cluster)]
    assert len(said) == len(decision.verdicts)
    assert sum(line.endswith(": is chosen") for line in said) == (decision.chosen is not None)


@given(job=jobs, seen=snapshots())
def test_the_chosen_place_has_nodes_for_every_pod(job: JobSpec, seen: Snapshot) -> None:
    chosen = place(job, seen, POLICY).chosen
    if chosen is None:
        return
    [state] = [state for state in seen.clusters if state.cluster.name == chosen.cluster]
    pool, usable = state.cluster.pool(chosen.pool), [n for n in state.nodes if n.ready and n.schedulable]
    assert pool.gpu_share == (HALVES if job.gpu_fraction else None)
    assert bool(pool.gpus_per_node) == bool(job.gpus_per_node)
    wanted = job.gpus_per_node or job.cpu_millicores
    free = {
        n.name: n.allocatable_gpus if job.gpus_per_node else n.cpu_millicores or 0
        for n in usable
        if n.pool == pool.name
    }
    for running in state.pods:
        if running.node in free and running.gpu_resource == pool.gpu_resource:
            free[running.node] -= running.gpus if job.gpus_per_node else running.cpu_millicores
    assert sum(max(0, left) // wanted for left in free.values()) >= job.nodes


@given(queue=st.lists(jobs, max_size=12))
def test_jobs_placed_one_after_the_other_never_exceed_a_node_or_a_quota(queue: list[JobSpec]) -> None:
    """Each reservation's pods are put on nodes as the cluster's scheduler would, and every one of them finds a node."""
    seen = snapshot(*(cluster_state(cluster) for cluster in CLUSTERS))
    promised: list[Reservation] = []
    for number, job in enumerate(queue):
        chosen = place(job, replace(seen, reservations=tuple(promised)), POLICY).chosen
        if chosen is not None:
            promised.append(_reserved(f"j{number:02}-1", job, chosen))
            kind = next(cluster.kind for cluster in CLUSTERS if cluster.name == chosen.cluster)
            quotas, used = department_gpus(POLICY.quotas, CLUSTERS, kind), gpus_in_use(promised, CLUSTERS, kind)
            assert used[job.department] <= quotas.most(job.department, borrowing=job.spot_ok)
    free = {
        (s.cluster.name, n.pool, n.name): n.allocatable_gpus or n.cpu_millicores or 0
        for s in seen.clusters
        for n in s.nodes
    }
    for held in promised:
        wanted = held.gpus_per_node or held.cpu_millicores_per_node
        for _ in range(held.nodes):
            fitting = [k for k, f in free.items() if k[:2] == (held.cluster, held.pool) and f >= wanted]
            free[min(fitting)] -= wanted
    assert all(left >= 0 for left in free.values())
    assert sum(held.gpus for held in promised if held.billing is Billing.RESERVED) <= 8


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
    resource = state.cluster.pool(first.pool).gpu_resource
    asked = {"gpus": job.gpus_per_node, "gpu_resource": resource, "cpu_millicores": job.cpu_millicores}
    for where in (None, min(usable)):
        its_pod = pod(name="first-1", **asked, attempt="first-1", node=where)
        others = tuple(other for other in empty.clusters if other is not state)
        appeared = replace(promised, clusters=(*others, replace(state, pods=(its_pod,))))
        assert place(job_spec(gpus_per_node=1), appeared, POLICY) == place(job_spec(gpus_per_node=1), promised, POLICY)
        assert place(job, appeared, POLICY) == place(job, promised, POLICY)


@given(job=jobs, seen=snapshots())
def test_who_looks_without_the_table_sees_what_the_decision_comes_to(job: JobSpec, seen: Snapshot) -> None:
    decision = place(job, seen, POLICY)
    rows = tuple(verdict for verdict in decision.verdicts if verdict.candidate == decision.chosen)
    assert choose(job, index(seen, POLICY)) == replace(decision, verdicts=rows)


@given(
    asked=st.lists(st.tuples(jobs, st.lists(waiting, max_size=2, unique_by=attrgetter("run")), schedules), min_size=2),
    seen=snapshots(),
)
def test_jobs_that_share_an_index_are_told_what_each_is_alone(
    asked: list[tuple[JobSpec, list[QueuedRun], Schedule | None]], seen: Snapshot
) -> None:
    shared = index(seen, POLICY)
    for job, queue, schedule in asked:
        own = replace(seen, queue=tuple(queue), schedule=schedule)
        assert choose(job, shared.deciding(own)) == choose(job, index(own, POLICY))


@given(job=jobs, other=jobs, seen=snapshots())
def test_jobs_of_one_shape_are_told_the_same_of_a_pool(job: JobSpec, other: JobSpec, seen: Snapshot) -> None:
    context = index(seen, POLICY)
    alike = replace(other, **{name: getattr(job, name) for name in SHAPE})
    for check in OF_POOL:
        for of_cluster in context.offers:
            for of_pool in of_cluster:
                assert check(job, of_pool[0], context) == check(alike, of_pool[0], context)


@given(job=jobs, seen=snapshots())
def test_a_filter_says_the_same_of_all_that_it_is_asked_for_once(job: JobSpec, seen: Snapshot) -> None:
    assert {*OF_CLUSTER, *OF_POOL, *BY_BILLING, *OF_QUEUE} == set(FILTERS)
    context = index(seen, POLICY)
    for of_cluster in context.offers:
        every = [candidate for of_pool in of_cluster for candidate in of_pool]
        for check in OF_CLUSTER:
            assert len({check(job, candidate, context) is None for candidate in every}) == 1
        for of_pool in of_cluster:
            for check in (*OF_CLUSTER, *OF_POOL, *OF_QUEUE):
                assert len({check(job, candidate, context) for candidate in of_pool}) == 1


@given(job=jobs, seen=snapshots())
def test_no_place_is_chosen_that_a_filter_rejects(job: JobSpec, seen: Snapshot) -> None:
    decision = place(job, seen, POLICY)
    context = index(seen, POLICY)
    for check in FILTERS:
        assert decision.chosen is None or check(job, decision.chosen, context) is None
    unspoken = [verdict.candidate for verdict in decision.verdicts if not verdict.rejections]
    assert (decision.chosen is None) == (not unspoken)


@given(job=jobs, seen=snapshots(), less=st.decimals(min_value="0.01", max_value="0.99", places=2))
def test_a_cheaper_place_that_is_equal_otherwise_never_loses(job: JobSpec, seen: Snapshot, less: Decimal) -> None:
    """Every cluster gets a twin, whose name comes last, that differs in its prices only."""
    twins = tuple(replace(state, cluster=_twin(state.cluster, less)) for state in seen.clusters)
    there = seen.datasets_present | {
        (record, facts.home) for name, facts in seen.datasets.items() for record in (name, f"{name}@{Tier.PUBLIC}")
    }
    both = replace(
        seen,
        clusters=(*seen.clusters, *twins),
        cool_downs=(),
        datasets_present=there | {(dataset, f"z-{cluster}") for dataset, cluster in there},
        link_rates={**seen.link_rates, **{f"z-{cluster}": rate for cluster, rate in seen.link_rates.items()}},
        reservations=(),
    )
    chosen = place(job, both, POLICY).chosen
    assert chosen is None or chosen.cluster.startswith("z-")


def _twin(cluster: Cluster, less: Decimal) -> Cluster:
    def lower(prices: Mapping[Billing, Decimal]) -> Mapping[Billing, Decimal]:
        return {billing: price * less for billing, price in prices.items()}

    pools = (
        replace(
            pool,
            prices_per_gpu_hour=lower(pool.prices_per_gpu_hour),
            prices_per_core_hour=lower(pool.prices_per_core_hour),
            off_peak=pool.off_peak and replace(pool.off_peak, prices_per_hour=lower(pool.off_peak.prices_per_hour)),
        )
        for pool in cluster.pools
    )
    return replace(cluster, name=f"z-{cluster.name}", pools=tuple(pools))


def _reserved(attempt: str, job: JobSpec, chosen: Candidate) -> Reservation:
    return reservation(
        attempt=attempt,
        department=job.department,
        gpus_per_node=job.gpus_per_node,
        nodes=job.nodes,
        gpu_fraction=job.gpu_fraction,
        cpu_millicores_per_node=job.cpu_millicores,
        **asdict(chosen),
    )
