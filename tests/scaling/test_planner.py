"""What is wanted of a pool becomes one target: who wins, what bounds it, and who leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from spillway.model import Contribution, OrderKind, PoolTarget, PoolUse, Source
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT
from spillway.scaling.wishes import UNCHANGED
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    POOL,
    booting_node,
    busy_node,
    carried_out,
    idle_node,
    manual_order,
    pending_job,
    pending_jobs,
    pool_use,
    scaling_snapshot,
)

RULES = replace(DEFAULT, forecast=None, idle_release=10 * MINUTE)
HOUR = timedelta(hours=1)


def test_a_pool_of_which_nobody_wants_anything_keeps_its_size_and_says_so() -> None:
    seen = scaling_snapshot(pool_use(busy_node("a"), idle_node("b", 9 * MINUTE)))
    unchanged = Contribution(source=Source.REACTIVE, nodes=2, reason=UNCHANGED)
    assert plan_scaling(seen, {}, RULES) == (
        PoolTarget(cluster="cloud", pool="h100", nodes=2, contributions=(unchanged,)),
    )


def test_a_job_that_finds_no_room_gets_its_nodes_at_once() -> None:
    plan = plan_scaling(scaling_snapshot(pool_use(busy_node("a")), queue=pending_jobs(3)), {}, RULES)
    reason = "3 more: for jobs that wait and find no room"
    wish = Contribution(source=Source.REACTIVE, nodes=4, reason=reason)
    assert plan == (PoolTarget(cluster="cloud", pool="h100", nodes=4, contributions=(wish,)),)


@pytest.mark.parametrize(
    "coming",
    [pool_use(booting_node("a")), pool_use(wanted=1), pool_use(idle_node("a"))],
    ids=["booting", "on order", "idle"],
)
def test_what_is_coming_or_idle_counts_and_is_not_ordered_again(coming: PoolUse) -> None:
    [target] = plan_scaling(scaling_snapshot(coming, queue=pending_jobs(1)), {}, RULES)
    assert target.nodes == 1


def test_idle_nodes_leave_after_ten_minutes_the_oldest_first_and_never_one_with_a_pod() -> None:
    nodes = (idle_node("young", 9 * MINUTE), idle_node("b", 10 * MINUTE), idle_node("a", 12 * MINUTE), busy_node("c"))
    [target] = plan_scaling(scaling_snapshot(pool_use(*nodes)), {}, RULES)
    assert (target.nodes, target.remove) == (2, ("a", "b"))


@pytest.mark.parametrize("changed", ["last_out", "last_in"])
def test_a_pool_that_grew_or_shrank_shrinks_again_when_it_has_cooled_down(changed: str) -> None:
    rules = replace(RULES, cool_down_in=5 * MINUTE)
    use = pool_use(idle_node("a", HOUR))
    for ago, nodes in ((5 * MINUTE - timedelta(seconds=1), 1), (5 * MINUTE, 0)):
        [target] = plan_scaling(scaling_snapshot(use, **{changed: {POOL: NOW - ago}}), {}, rules)
        assert target.nodes == nodes
    [target] = plan_scaling(scaling_snapshot(use, **{changed: {("cloud", "other"): NOW}}), {}, rules)
    assert target.nodes == 0


def test_an_idle_node_that_a_waiting_job_is_about_to_take_stays_and_the_older_one_leaves() -> None:
    use = pool_use(idle_node("old", 30 * MINUTE), idle_node("new", 20 * MINUTE))
    [target] = plan_scaling(scaling_snapshot(use, queue=pending_jobs(1)), {}, RULES)
    assert (target.nodes, target.remove) == (1, ("old",))


def test_a_node_of_which_nobody_knows_that_it_is_idle_stays() -> None:
    use = pool_use(idle_node("a", HOUR, idle_since=None))
    [target] = plan_scaling(scaling_snapshot(use), {}, RULES)
    assert (target.nodes, target.remove) == (1, ())


def test_a_node_without_usable_gpus_past_its_boot_allowance_is_replaced_once() -> None:
    late = booting_node("late", HOUR, ready_at=NOW - 15 * MINUTE - timedelta(seconds=1))
    in_time = booting_node("in-time", HOUR, ready_at=NOW - 15 * MINUTE)
    seen = scaling_snapshot(pool_use(late, in_time))
    [target] = plan = plan_scaling(seen, {}, RULES)
    assert (target.nodes, target.remove, target.replaces) == (2, ("late",), ("late",))
    still_there = replace(carried_out(seen, plan), pools=seen.pools)
    [again] = plan_scaling(still_there, {}, RULES)
    assert (again.nodes, again.remove, again.replaces) == (2, (), ())


@pytest.mark.parametrize(("age", "replaced"), [(5 * MINUTE, ()), (5 * MINUTE + timedelta(seconds=1), ("slow",))])
def test_a_node_that_is_never_ready_fails_by_its_age(age: timedelta, replaced: tuple[str, ...]) -> None:
    [target] = plan_scaling(scaling_snapshot(pool_use(booting_node("slow", age), boot_allowance=5 * MINUTE)), {}, RULES)
    assert target.replaces == replaced


@pytest.mark.parametrize(
    ("looks", "replaced"),
    [
        pytest.param(((-60, 0),), ("a", "b"), id="at any time"),
        pytest.param(((-60, -29), (0, 0)), (), id="the clock has jumped, and this is the first look since"),
        pytest.param(((-60, -29), (-13, 0)), (), id="not long enough since"),
        pytest.param(((-60, -29), (-15, 0)), ("a",), id="before and since"),
        pytest.param(((-60, -29), (-16, 0)), ("a", "b"), id="since"),
        pytest.param(((0, 0),), (), id="never before"),
        pytest.param(((30, 60), (0, 0)), (), id="the clock was put back"),
        pytest.param(((-30, -20), (-28, -18), (0, 0)), (), id="it was put back, and no minute counts twice"),
    ],
)
def test_a_node_fails_by_the_time_in_which_somebody_looked(
    looks: tuple[tuple[int, int], ...], replaced: tuple[str, ...]
) -> None:
    use = pool_use(booting_node("a", 30 * MINUTE), booting_node("b", 20 * MINUTE))
    spans = tuple((NOW + began * MINUTE, NOW + ended * MINUTE) for began, ended in looks)
    [target] = plan_scaling(scaling_snapshot(use, watched=spans), {}, RULES)
    assert (target.nodes, target.replaces) == (2, replaced)


def test_a_node_that_is_made_under_the_name_of_one_that_was_replaced_is_another_one() -> None:
    replaced = {POOL: {NOW - 2 * HOUR: frozenset({"ip-10-0-0-7"})}}
    reborn = idle_node("ip-10-0-0-7", HOUR, created_at=NOW - 2 * HOUR + timedelta(seconds=1))
    [target] = plan_scaling(scaling_snapshot(pool_use(reborn), replaced=replaced), {}, RULES)
    assert (target.nodes, target.remove) == (0, ("ip-10-0-0-7",))
    [target] = plan_scaling(scaling_snapshot(pool_use(reborn), queue=pending_jobs(1), replaced=replaced), {}, RULES)
    assert (target.nodes, target.remove) == (1, ())


def failing(*ago: timedelta) -> Mapping[tuple[str, str], Mapping[datetime, frozenset[str]]]:
    """Nodes of the pool that failed were replaced so long ago."""
    return {POOL: {NOW - one: frozenset({f"n{number}"}) for number, one in enumerate(ago)}}


GIVEN_UP = NOW + 22 * HOUR


def test_nodes_that_fail_three_times_in_a_row_are_given_back_and_no_more_are_ordered_for_a_day() -> None:
    seen = scaling_snapshot(
        pool_use(booting_node("late", 20 * MINUTE)), queue=pending_jobs(1), replaced=failing(2 * HOUR, HOUR, MINUTE)
    )
    [target] = plan_scaling(seen, {}, RULES)
    assert (target.nodes, target.remove, target.replaces, target.given_up_until) == (0, ("late",), (), GIVEN_UP)
    empty = replace(seen, pools=(pool_use(),))
    [after] = plan_scaling(empty, {}, RULES)
    assert (after.nodes, after.remove, after.given_up_until) == (0, (), None)
    assert after.clamps == (
        "failed nodes were replaced 3 times in a row and none has become usable since, so no more come until "
        "2026-01-06T10:00:00+00:00; mend what they boot with, then order nodes with `scale add`",
    )
    [tomorrow] = plan_scaling(replace(empty, replaced=failing(24 * HOUR, HOUR, MINUTE)), {}, RULES)
    assert tomorrow.nodes == 1


def test_while_nodes_are_still_being_replaced_or_one_has_come_since_the_next_one_is_too() -> None:
    late, job = booting_node("late", 20 * MINUTE), pending_jobs(1)
    thrice = failing(2 * HOUR, HOUR, 30 * MINUTE)
    for seen in (
        scaling_snapshot(pool_use(late), queue=job, replaced=failing(HOUR, MINUTE)),
        scaling_snapshot(pool_use(late, busy_node("good", created_at=NOW - HOUR)), queue=job, replaced=thrice),
        scaling_snapshot(pool_use(late), queue=job, replaced=thrice, orders=(manual_order(nodes=1),)),
    ):
        [target] = plan_scaling(seen, {}, RULES)
        assert (target.nodes, target.replaces, target.given_up_until) == (len(seen.pools[0].nodes), ("late",), None)


def test_a_pool_whose_nodes_all_fail_keeps_those_that_it_has_at_least_and_counts_them_as_no_room() -> None:
    late = [booting_node(name, 20 * MINUTE) for name in ("a", "b", "c")]
    other = pool_use()
    other = replace(other, pool=replace(other.pool, name="other", prices_per_gpu_hour={}))
    job = pending_jobs(1, places=frozenset({POOL, ("cloud", "other")}))
    seen = scaling_snapshot(pool_use(*late, min_nodes=2), other, queue=job, replaced=failing(2 * HOUR, HOUR, MINUTE))
    target, elsewhere = plan_scaling(seen, {}, RULES)
    assert (target.nodes, target.remove, target.replaces, target.given_up_until) == (2, ("a",), (), GIVEN_UP)
    assert (elsewhere.pool, elsewhere.nodes) == ("other", 1)


def test_a_failed_node_with_a_pod_stays() -> None:
    use = pool_use(booting_node("late", HOUR, pods=1))
    [target] = plan_scaling(scaling_snapshot(use), {}, RULES)
    assert (target.nodes, target.remove, target.replaces) == (1, (), ())


def test_a_cordoned_empty_node_leaves_where_its_provider_still_counts_it() -> None:
    use = pool_use(busy_node("a"), idle_node("b", draining=True))
    for queue, nodes in (((), 1), (pending_jobs(1), 2)):
        [target] = plan_scaling(scaling_snapshot(use, queue=queue), {}, RULES)
        assert (target.nodes, target.remove) == (nodes, ("b",))
        [after] = plan_scaling(scaling_snapshot(replace(use, wanted=1), queue=queue), {}, RULES)
        assert (after.nodes, after.remove) == (nodes, ())


def test_a_pool_that_is_unknown_keeps_its_size_and_says_why() -> None:
    use = pool_use(idle_node("a", HOUR), wanted=4)
    seen = scaling_snapshot(use, unknown={POOL: "HTTP 503"}, queue=pending_jobs(9))
    assert plan_scaling(seen, {}, RULES) == (
        PoolTarget(cluster="cloud", pool="h100", nodes=4, clamps=("not known, so it keeps its size: HTTP 503",)),
    )


def test_a_pool_is_never_larger_than_declared() -> None:
    [target] = plan_scaling(scaling_snapshot(pool_use(max_nodes=6), orders=(manual_order(nodes=9),)), {}, RULES)
    assert (target.nodes, target.clamps) == (6, ("9 nodes wanted, it may have 6",))


def test_a_pool_that_is_larger_than_declared_shrinks_to_it_by_what_has_no_pod() -> None:
    nodes = (busy_node("a"), booting_node("b"), idle_node("c"))
    [target] = plan_scaling(scaling_snapshot(pool_use(*nodes, wanted=4, max_nodes=2)), {}, RULES)
    assert (target.nodes, target.remove) == (2, ("b",))


def test_a_pool_has_its_least_whether_anybody_waits_or_not() -> None:
    [target] = plan_scaling(scaling_snapshot(pool_use(idle_node("a", HOUR), min_nodes=2)), {}, RULES)
    assert (target.nodes, target.remove) == (2, ())


def test_growth_is_what_the_budget_bears_for_an_hour_of_each_node() -> None:
    seen = scaling_snapshot(pool_use(), orders=(manual_order(nodes=4),), money_left=Decimal("191.99"))
    [target] = plan_scaling(seen, {}, RULES)  # 8 GPUs at 8.0: 64 an hour
    assert (target.nodes, target.clamps) == (2, ("4 more nodes wanted, the budget bears 2",))


def test_the_budget_pays_for_nodes_without_pods_first_so_that_a_plan_is_not_repeated() -> None:
    nodes = (busy_node("a"), idle_node("b"), booting_node("c"))
    seen = scaling_snapshot(pool_use(*nodes), orders=(manual_order(nodes=9),), money_left=Decimal(192))
    plan = plan_scaling(seen, {}, RULES)
    assert [target.nodes for target in plan] == [4]
    assert [target.nodes for target in plan_scaling(carried_out(seen, plan), {}, RULES)] == [4]


def test_what_one_pool_gets_the_budget_no_longer_bears_for_the_next() -> None:
    other = replace(pool_use().pool, name="other")
    orders = (manual_order(nodes=4), manual_order(order="o2", pool="other", nodes=4))
    seen = scaling_snapshot(pool_use(), pool_use(pool=other), orders=orders, money_left=Decimal(5 * 64))
    assert [target.nodes for target in plan_scaling(seen, {}, RULES)] == [4, 1]


def test_a_price_that_nobody_knows_is_none_that_a_budget_bears() -> None:
    use = pool_use(pool=replace(pool_use().pool, prices_per_gpu_hour={}))
    seen = scaling_snapshot(use, queue=pending_jobs(1))
    assert [target.nodes for target in plan_scaling(seen, {}, RULES)] == [1]
    assert [target.nodes for target in plan_scaling(replace(seen, money_left=Decimal(10**9)), {}, RULES)] == [0]


def test_without_money_no_node_is_ordered_and_those_there_are_stay() -> None:
    seen = scaling_snapshot(pool_use(busy_node("a")), queue=pending_jobs(1), money_left=Decimal(0))
    [target] = plan_scaling(seen, {}, RULES)
    assert (target.nodes, target.remove) == (1, ())


def test_people_get_their_nodes_until_their_order_ends() -> None:
    order = manual_order(base_nodes=1, nodes=2, until=NOW + MINUTE)
    seen = scaling_snapshot(pool_use(busy_node("a")), orders=(order,))
    [target] = plan_scaling(seen, {}, RULES)
    assert target.nodes == 3
    [target] = plan_scaling(replace(seen, taken_at=order.until), {}, RULES)
    assert target.nodes == 1


@pytest.mark.parametrize("kind", OrderKind)
def test_an_order_holds_from_the_moment_on_at_which_it_was_given(kind: OrderKind) -> None:
    nodes = 2 if kind is OrderKind.ADD else 0
    order = manual_order(kind=kind, nodes=nodes, ordered_at=NOW, ready_by=None)
    seen = scaling_snapshot(pool_use(idle_node("a")), orders=(order,))
    assert [target.nodes for target in plan_scaling(seen, {}, RULES)] == [nodes]
    before = replace(seen, orders=(replace(order, ordered_at=NOW + timedelta(seconds=1)),))
    [target] = plan_scaling(before, {}, RULES)
    assert (target.nodes, [wish.source for wish in target.contributions]) == (1, [Source.REACTIVE])


def test_of_a_clock_that_was_put_back_no_pool_cools_down_until_it_is_as_late_again() -> None:
    ahead = {POOL: NOW + HOUR}
    grows = scaling_snapshot(pool_use(), queue=pending_jobs(1), last_out=ahead)
    shrinks = scaling_snapshot(pool_use(idle_node("a", HOUR)), last_out=ahead, last_in=ahead)
    for rules in (RULES, replace(RULES, cool_down_out=5 * MINUTE, cool_down_in=5 * MINUTE)):
        assert [target.nodes for target in plan_scaling(grows, {}, rules)] == [1]
        assert [target.nodes for target in plan_scaling(shrinks, {}, rules)] == [0]


def test_a_forced_shrink_wins_over_people_and_jobs_and_not_over_pods_and_the_least() -> None:
    nodes = (busy_node("b"), idle_node("i", MINUTE), booting_node("new"))
    shrink = manual_order(order="o2", kind=OrderKind.SHRINK, nodes=0)
    orders = (shrink, manual_order(nodes=7))
    seen = scaling_snapshot(pool_use(*nodes, wanted=5), orders=orders, queue=pending_jobs(3))
    [target] = plan_scaling(seen, {}, RULES)
    assert (target.nodes, target.remove) == (1, ("new", "i"))
    assert target.clamps == ("down to 0 wanted, the others of 1 have pods or are not idle for certain",)
    least = replace(seen, pools=(pool_use(*nodes, wanted=5, min_nodes=2),))
    [target] = plan_scaling(least, {}, RULES)
    assert (target.nodes, target.remove, target.clamps) == (2, ("new",), ())


def test_of_two_forced_shrinks_the_lower_holds() -> None:
    nodes = (idle_node("a", 2 * MINUTE), idle_node("b", MINUTE), idle_node("c"))
    orders = tuple(manual_order(order=f"o{most}", kind=OrderKind.SHRINK, nodes=most) for most in (1, 2))
    [target] = plan_scaling(scaling_snapshot(pool_use(*nodes), orders=orders), {}, RULES)
    assert (target.nodes, target.remove) == (1, ("a", "b"))


def test_of_a_forced_shrink_with_names_only_these_leave() -> None:
    nodes = (busy_node("a"), busy_node("b"), idle_node("c", 2 * MINUTE), idle_node("d", MINUTE))
    shrink = manual_order(kind=OrderKind.SHRINK, nodes=2, remove=("a", "d"))
    [target] = plan_scaling(scaling_snapshot(pool_use(*nodes), orders=(shrink,)), {}, RULES)
    assert (target.nodes, target.remove) == (3, ("d",))


def test_jobs_that_hold_or_are_of_the_past_order_no_nodes() -> None:
    holds = pending_job("h", hold_until=NOW + MINUTE)
    seen = scaling_snapshot(pool_use(), queue=(holds, pending_job("p", backfill=True)))
    [target] = plan_scaling(seen, {}, RULES)
    assert target.nodes == 0
    [target] = plan_scaling(replace(seen, taken_at=NOW + MINUTE), {}, RULES)
    assert target.nodes == 1


def test_a_job_of_the_past_keeps_an_idle_node_that_nobody_else_takes() -> None:
    use = pool_use(idle_node("a", HOUR), idle_node("b", HOUR))
    [target] = plan_scaling(scaling_snapshot(use, queue=(pending_job(backfill=True),)), {}, RULES)
    assert target.nodes == 1
