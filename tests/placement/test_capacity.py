"""Free GPUs are counted node by node, and nothing is counted twice or forgotten."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.model import NodeState, PodUse, Reservation
from spillway.placement.capacity import ClusterUse, PoolCapacity, Room
from spillway.testing.builders import cluster_state, node, node_pool, nodes_of, onprem_cluster, pod, reservation

TWO_NODES = nodes_of(node_pool(), 2)


def free_gpus(
    *,
    nodes: tuple[NodeState, ...] = TWO_NODES,
    pods: tuple[PodUse, ...] = (),
    reservations: tuple[Reservation, ...] = (),
) -> Mapping[str, int]:
    state = cluster_state(onprem_cluster(), nodes=nodes, pods=pods)
    return {name: room.gpus for name, room in ClusterUse(state, reservations).capacities()["a100"].free.items()}


ON_FIRST: dict[str, Any] = {"node": "a100-0"}

TAKEN = {
    "nothing": ((), (), (8, 8)),
    "a foreign pod on its node": ((pod(gpus=3, **ON_FIRST),), (), (5, 8)),
    "pods on different nodes": ((pod(gpus=3, **ON_FIRST), pod(gpus=2, node="a100-1")), (), (5, 6)),
    "more than there is": ((pod(gpus=9, **ON_FIRST),), (), (0, 8)),
    "a pod on a node that is gone": ((pod(gpus=3, node="a100-7"),), (), (8, 8)),
    "a foreign pending pod, first fit": ((pod(gpus=3),), (), (5, 8)),
    "a pending pod that fits on no node": ((pod(gpus=16),), (), (8, 8)),
    "pending pods, the largest first": ((pod(name="a", gpus=1), pod(name="b", gpus=8)), (), (0, 7)),
    "a reservation without a pod": ((), (reservation(gpus_per_node=3),), (5, 8)),
    "a reservation of a gang": ((), (reservation(gpus_per_node=5, nodes=2),), (3, 3)),
    "a gang whose pods share a node": ((), (reservation(gpus_per_node=4, nodes=3),), (0, 4)),
    "a reservation and its pod": (
        (pod(gpus=3, attempt="other-1", node="a100-1"),),
        (reservation(gpus_per_node=3),),
        (8, 5),
    ),
    "a reservation and its pending pod": ((pod(gpus=3, attempt="other-1"),), (reservation(gpus_per_node=3),), (5, 8)),
    "a gang of which one pod has its node": (
        (pod(gpus=5, attempt="other-1", node="a100-1"), pod(name="worker", gpus=5, attempt="other-1")),
        (reservation(gpus_per_node=5, nodes=2),),
        (3, 3),
    ),
    "a reservation and the pod of another attempt": (
        (pod(gpus=3, attempt="other-2", node="a100-1"),),
        (reservation(gpus_per_node=3),),
        (5, 5),
    ),
    "a reservation and a pending pod of another attempt": (
        (pod(gpus=2, attempt="other-2"),),
        (reservation(gpus_per_node=3),),
        (3, 8),
    ),
    "a reservation of another pool": ((), (reservation(pool="v100", gpus_per_node=3),), (8, 8)),
    "a reservation of another cluster": ((), (reservation(cluster="cloud", gpus_per_node=3),), (8, 8)),
}


@pytest.mark.parametrize(("pods", "reservations", "free"), TAKEN.values(), ids=TAKEN.keys())
def test_what_is_taken_from_two_nodes_of_eight(
    pods: tuple[PodUse, ...], reservations: tuple[Reservation, ...], free: tuple[int, int]
) -> None:
    assert free_gpus(pods=pods, reservations=reservations) == {"a100-0": free[0], "a100-1": free[1]}


def test_a_pod_on_a_lost_node_is_not_packed_onto_another_one() -> None:
    lost = node(name="a100-0", ready=False)
    free = free_gpus(
        nodes=(lost, TWO_NODES[1]),
        pods=(pod(gpus=3, attempt="other-1", node="a100-0"),),
        reservations=(reservation(gpus_per_node=3),),
    )
    assert free == {"a100-1": 8}


@pytest.mark.parametrize(
    "unusable",
    [node(ready=False), node(schedulable=False), node(pool=None), node(pool="v100")],
    ids=["not ready", "cordoned", "of no declared pool", "of another pool"],
)
def test_a_node_that_takes_no_pods_of_the_pool_has_no_free_gpus(unusable: NodeState) -> None:
    assert free_gpus(nodes=(unusable,)) == {}


def test_nodes_that_are_lost_still_count_against_the_declared_maximum() -> None:
    pool = node_pool(max_nodes=3)
    state = cluster_state(onprem_cluster(pools=(pool,)), nodes=(node(ready=False), node(name="a100-1")))
    assert ClusterUse(state, ()).capacities() == {"a100": PoolCapacity(free={"a100-1": Room(8)}, nodes_to_add=1)}


@pytest.mark.parametrize(("gpus", "blocks"), [(1, 13), (2, 6), (3, 4), (5, 1), (6, 1), (7, 0)])
def test_blocks_are_counted_per_node(gpus: int, blocks: int) -> None:
    capacity = PoolCapacity(free={n: Room(g) for n, g in zip("abcd", (6, 4, 3, 0), strict=True)}, nodes_to_add=0)
    assert capacity.blocks(Room(gpus)) == blocks
    assert capacity.largest_block == 6


LARGE = node(cpu_millicores=8000, memory_mib=16384)
PAIRS = {
    "nothing": ((), (), Room(8, 8000, 16384)),
    "a pod on its node": ((pod(gpus=1, cpu_millicores=500, memory_mib=100, node="a100-0"),), (), Room(7, 7500, 16284)),
    "a reservation": (
        (),
        (reservation(cpu_millicores_per_node=6000, memory_mib_per_node=1024),),
        Room(7, 2000, 15360),
    ),
    "a reservation whose cores are not there": ((), (reservation(cpu_millicores_per_node=8001),), Room(8, 8000, 16384)),
    "a pending pod whose memory is not there": ((pod(gpus=1, memory_mib=16385),), (), Room(8, 8000, 16384)),
    "more than there is": ((pod(cpu_millicores=9000, node="a100-0"),), (), Room(7, 0, 16384)),
}


@pytest.mark.parametrize(("pods", "reservations", "left"), PAIRS.values(), ids=PAIRS.keys())
def test_cores_and_memory_are_taken_with_the_gpus(
    pods: tuple[PodUse, ...], reservations: tuple[Reservation, ...], left: Room
) -> None:
    state = cluster_state(onprem_cluster(), nodes=(LARGE,), pods=pods)
    assert ClusterUse(state, reservations).capacities()["a100"].free == {"a100-0": left}


@pytest.mark.parametrize(
    ("room", "one", "times"),
    [
        (Room(8, 8000, 16384), Room(1, 3000, 1024), 2),
        (Room(8, 8000, 16384), Room(1, 1000, 6000), 2),
        (Room(8, 8000, 16384), Room(3, 1, 1), 2),
        (Room(8, None, 16384), Room(1, 9000, 1024), 8),
        (Room(8, 0, 0), Room(2), 4),
        (Room(0, 8000, 16384), Room(1, 1, 1), 0),
    ],
    ids=["cores", "memory", "GPUs", "cores that the node does not say", "a pod that asks for none", "no GPU"],
)
def test_the_scarcest_of_a_node_decides_how_many_pods_it_takes(room: Room, one: Room, times: int) -> None:
    assert room.times(one) == times


attempts = st.sampled_from([None, "r-0", "r-1"])
nodes = st.lists(
    st.builds(node, name=st.sampled_from("abcde"), allocatable_gpus=st.integers(1, 8)), unique_by=attrgetter("name")
)
pods = st.lists(
    st.builds(pod, name=st.sampled_from("pqrst"), gpus=st.integers(1, 8), attempt=attempts, node=st.just(None)),
    unique_by=attrgetter("name"),
)
promises = st.lists(
    st.builds(reservation, attempt=st.sampled_from(["r-0", "r-1", "r-2"]), gpus_per_node=st.integers(1, 8)),
    unique_by=lambda promise: promise.attempt,
)


@given(nodes=nodes, pods=pods, promises=promises, order=st.randoms(use_true_random=False))
def test_the_order_of_nodes_pods_and_reservations_does_not_matter(
    nodes: list[NodeState], pods: list[PodUse], promises: list[Reservation], order: random.Random
) -> None:
    state = cluster_state(onprem_cluster(), nodes=nodes, pods=pods)
    other = cluster_state(onprem_cluster(), nodes=order.sample(nodes, len(nodes)), pods=order.sample(pods, len(pods)))
    shuffled = ClusterUse(other, order.sample(promises, len(promises)))
    assert shuffled.capacities() == ClusterUse(state, promises).capacities()


@given(nodes=nodes, pods=pods, promises=promises, ended=st.sets(attempts.filter(bool)), chance=st.randoms())
def test_what_will_be_free_is_what_would_be_free_without_those_who_have_ended(
    nodes: list[NodeState], pods: list[PodUse], promises: list[Reservation], ended: set[str], chance: random.Random
) -> None:
    ended &= {promise.attempt for promise in promises}
    names = [None, *(node.name for node in nodes)]
    placed = [replace(pod, node=chance.choice(names)) for pod in pods]
    without = cluster_state(onprem_cluster(), nodes=nodes, pods=[pod for pod in placed if pod.attempt not in ended])
    left = ClusterUse(without, [promise for promise in promises if promise.attempt not in ended])
    state = cluster_state(onprem_cluster(), nodes=nodes, pods=placed)
    assert ClusterUse(state, promises).capacities(ended) == left.capacities()


def test_a_pod_that_is_pending_may_come_to_lie_in_another_pool_when_a_job_ends_there() -> None:
    pools = (node_pool(), node_pool(name="v100"))
    state = cluster_state(
        onprem_cluster(pools=pools),
        nodes=[node(name="a", pool="a100"), node(name="b", pool="v100")],
        pods=[pod(name="ours", attempt="r-0", gpus=8, node="a"), pod(name="theirs", gpus=8)],
    )
    use = ClusterUse(state, [reservation(attempt="r-0", pool="a100")])
    assert use.capacity("v100").free["b"].gpus == 0
    assert use.capacity("v100", {promise.attempt for promise in use.bearing_on("v100")}).free["b"].gpus == 8


@given(nodes=nodes, pods=pods, promises=promises, ended=st.sets(attempts.filter(bool)), chance=st.randoms())
def test_of_one_pool_the_same_is_counted_as_of_all_of_them(
    nodes: list[NodeState], pods: list[PodUse], promises: list[Reservation], ended: set[str], chance: random.Random
) -> None:
    """Also without those who have ended, as far as they bear on it; pods may lie anywhere, or nowhere yet."""
    pools = [node_pool(), node_pool(name="v100")]
    apart = [replace(node, pool=chance.choice(pools).name) for node in nodes]
    names = [None, *(node.name for node in nodes)]
    state = cluster_state(
        onprem_cluster(pools=tuple(pools)),
        nodes=apart,
        pods=[replace(pod, node=chance.choice(names)) for pod in pods],
    )
    use = ClusterUse(state, [replace(promise, pool=chance.choice(pools).name) for promise in promises])
    for pool, counted in use.capacities(ended).items():
        bearing = {promise.attempt for promise in use.bearing_on(pool)}
        assert use.capacity(pool, ended) == counted
        assert (
            use.capacity(pool, {a for a in ended if a in bearing or a not in {p.attempt for p in promises}}) == counted
        )
