"""What waits, on what there is, on what comes, and on what has to be bought."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.model import Billing, PendingJob, PoolUse, Priority
from spillway.scaling.demand import PoolDemand, demand_of
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import THRIFTY
from spillway.scaling.rules import QueueRule
from spillway.scaling.sizes import size_of
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    POOL,
    booting_node,
    busy_node,
    idle_node,
    pending_job,
    pending_jobs,
    pool_use,
    scaling_snapshot,
)

OTHER = ("cloud", "a10")


def demanded(use: PoolUse, *queue: PendingJob, room: int = 100) -> PoolDemand:
    return demand_of(queue, [size_of(use, NOW)], {POOL: room}, NOW).pools[POOL]


def pool_of(name: str, *nodes: str, price: str, max_nodes: int = 100) -> PoolUse:
    use = pool_use(*(idle_node(node) for node in nodes), max_nodes=max_nodes)
    prices = {Billing.ON_DEMAND: Decimal(price)}
    return replace(use, pool=replace(use.pool, name=name, prices_per_gpu_hour=prices))


@pytest.mark.parametrize(
    ("gpus_per_node", "nodes", "expected"),
    [(8, 1, 1), (8, 8, 8), (4, 2, 1), (5, 2, 2), (3, 5, 3), (1, 8, 1), (1, 9, 2)],
)
def test_each_pod_of_a_gang_has_one_node_and_several_share_it_where_they_fit(
    gpus_per_node: int, nodes: int, expected: int
) -> None:
    assert demanded(pool_use(), pending_job(gpus_per_node=gpus_per_node, nodes=nodes)) == PoolDemand(
        new_nodes=expected, gpus=gpus_per_node * nodes, jobs=1
    )


def test_free_gpus_on_several_nodes_are_no_room_for_a_pod_of_eight() -> None:
    use = pool_use(*(busy_node(f"n{number}", free_gpus=4) for number in range(4)))
    assert demanded(use, pending_job()) == PoolDemand(new_nodes=1, gpus=8, jobs=1)
    assert demanded(use, pending_job(gpus_per_node=4, nodes=4)) == PoolDemand()


def test_a_gang_gets_what_is_there_and_the_rest_is_bought() -> None:
    use = pool_use(idle_node("a"), booting_node("b"), wanted=3)
    assert demanded(use, pending_job(nodes=8)) == PoolDemand(reserved=1, new_nodes=5, gpus=64, jobs=1)


def test_a_gang_for_which_a_pool_may_not_have_enough_buys_nothing_and_others_pass() -> None:
    assert demanded(pool_use(), pending_job("gang", nodes=8), room=7) == PoolDemand(gpus=64, jobs=1)
    both = (pending_job("gang", nodes=8, priority=Priority.PRODUCTION_CORE), pending_job("small"))
    assert demanded(pool_use(), *both, room=7) == PoolDemand(new_nodes=1, gpus=72, jobs=2)


def test_nodes_in_use_fill_first_so_that_idle_ones_can_leave() -> None:
    use = pool_use(busy_node("a", free_gpus=3), busy_node("b", free_gpus=2), idle_node("c"))
    assert demanded(use, *pending_jobs(2, gpus_per_node=2)) == PoolDemand()
    assert demanded(use, *pending_jobs(3, gpus_per_node=2)) == PoolDemand(reserved=1)


def test_what_is_cordoned_failed_or_broken_has_no_room() -> None:
    nodes = (
        idle_node("cordoned", draining=True),
        busy_node("cordoned, in use", free_gpus=8, draining=True),
        idle_node("half broken", gpus=4, free_gpus=4),
    )
    assert demanded(pool_use(*nodes), pending_job()) == PoolDemand(new_nodes=1, gpus=8, jobs=1)


def test_nodes_that_a_pool_has_too_many_are_no_room_for_anybody() -> None:
    use = pool_use(idle_node("a", timedelta(hours=1)), wanted=4, max_nodes=1)
    [target] = plan_scaling(scaling_snapshot(use, queue=(pending_job(nodes=2),)), {}, THRIFTY)
    assert (target.nodes, target.remove) == (1, ("a",))  # no gang of two has room there
    assert demanded(use, pending_job(nodes=2), room=-3) == PoolDemand(gpus=16, jobs=1)
    assert demanded(use, pending_job(), room=-3) == PoolDemand(reserved=1)


def test_the_place_of_a_failed_node_is_one_that_comes() -> None:
    assert demanded(pool_use(booting_node("late", timedelta(hours=1))), pending_job()) == PoolDemand()


def test_a_pod_that_no_node_of_the_pool_holds_wants_none_of_it() -> None:
    assert demanded(pool_use(), pending_job(gpus_per_node=9), pending_job(places=frozenset({OTHER}))) == PoolDemand()


def test_a_job_of_the_past_takes_what_others_leave() -> None:
    past = pending_job("a", backfill=True, since=NOW - timedelta(days=9), priority=Priority.PRODUCTION_CORE)
    use = pool_use(idle_node("n"))
    assert demanded(use, past) == PoolDemand(reserved=1)
    assert demanded(use, past, pending_job("b")) == PoolDemand(reserved=1)
    assert demanded(pool_use(), past) == PoolDemand()


def test_a_job_that_is_patient_takes_its_turn_at_what_there_is_and_has_nothing_bought() -> None:
    sizes, queue = [size_of(pool_use(idle_node("n")), NOW)], (pending_job("a"), pending_job("b"))
    demand = demand_of(queue, sizes, {POOL: 9}, NOW, patient={"a", "b"})
    assert demand.pools[POOL] == PoolDemand(reserved=1)
    demand = demand_of(queue, sizes, {POOL: 9}, NOW, patient={"a"})
    assert demand.pools[POOL] == PoolDemand(reserved=1, new_nodes=1, gpus=8, jobs=1)
    demand = demand_of(queue, [size_of(pool_use(), NOW)], {POOL: 9}, NOW, patient={"a"})
    assert demand.pools[POOL] == PoolDemand(new_nodes=1, gpus=8, jobs=1)


def test_an_idle_node_stays_for_a_job_that_has_not_waited_long_enough_to_have_one_ordered() -> None:
    rules = replace(THRIFTY, reactive=QueueRule(after=2 * MINUTE))
    use = pool_use(idle_node("a", timedelta(hours=1)))
    [target] = plan_scaling(scaling_snapshot(use, queue=pending_jobs(3)), {}, rules)
    assert (target.nodes, target.remove) == (1, ())
    [target] = plan_scaling(scaling_snapshot(use, queue=pending_jobs(3), taken_at=NOW + MINUTE), {}, rules)
    assert (target.nodes, target.remove) == (3, ())


def test_how_many_wait_counts_all_that_may_order_nodes_now() -> None:
    queue = (
        pending_job("a"),
        pending_job("b", places=frozenset()),
        pending_job("holds", hold_until=NOW + MINUTE),
        pending_job("held", hold_until=NOW),
        pending_job("past", backfill=True),
    )
    assert demand_of(queue, [size_of(pool_use(), NOW)], {POOL: 0}, NOW).waiting == 3
    assert demand_of(queue, [], {}, NOW).waiting == 3


def test_a_job_that_fits_in_several_pools_is_counted_once_at_the_cheapest() -> None:
    both = frozenset({POOL, OTHER})
    dear, cheap = pool_of("h100", price="8"), pool_of("a10", price="2")
    seen = scaling_snapshot(dear, cheap, queue=pending_jobs(2, places=both))
    assert [(target.pool, target.nodes) for target in plan_scaling(seen, {}, THRIFTY)] == [("a10", 2), ("h100", 0)]


def test_room_that_is_there_comes_before_what_is_cheaper_to_buy() -> None:
    both = frozenset({POOL, OTHER})
    seen = scaling_snapshot(
        pool_of("h100", "n", price="8"), pool_of("a10", price="2"), queue=(pending_job(places=both),)
    )
    assert [target.nodes for target in plan_scaling(seen, {}, THRIFTY)] == [0, 1]


def test_a_gang_is_bought_whole_where_the_cheapest_pool_may_not_have_it() -> None:
    both = frozenset({POOL, OTHER})
    seen = scaling_snapshot(
        pool_of("h100", price="8"),
        pool_of("a10", price="2", max_nodes=3),
        queue=(pending_job("gang", nodes=4, places=both), pending_job("small", places=both)),
    )
    assert [target.nodes for target in plan_scaling(seen, {}, THRIFTY)] == [1, 4]
