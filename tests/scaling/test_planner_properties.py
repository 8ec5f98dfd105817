"""What holds of every plan, whatever the pools look like and whoever asks for what."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.model import (
    Forecast,
    ManualOrder,
    OrderKind,
    PendingJob,
    PoolTarget,
    PoolUse,
    Priority,
    ScalableNode,
    ScalingSnapshot,
)
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import PRESETS
from spillway.scaling.rules import ScalingRules, WindowRule
from spillway.scaling.steady import steady_until
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    POOL,
    booting_node,
    busy_node,
    carried_out,
    idle_node,
    manual_order,
    measured,
    pending_job,
    pool_use,
    scaling_snapshot,
)
from spillway.windows import Iteration

T = TypeVar("T")
HOUR = timedelta(hours=1)
SECOND_POOL = ("cloud", "a10")
KEYS = (POOL, SECOND_POOL)
POINTS = tuple(measured(used_gpus, step=HOUR) for used_gpus in (10, 50, 90))
OFTEN = settings(max_examples=50, deadline=None)


@st.composite
def nodes(draw: st.DrawFn) -> ScalableNode:
    name = f"n{draw(st.integers(0, 10**6)):07}"
    since = draw(st.integers(0, 120)) * MINUTE
    match draw(st.sampled_from(["busy", "idle", "unsure", "booting", "ready without GPUs", "stuck"])):
        case "busy":
            node = busy_node(name, free_gpus=draw(st.integers(0, 7)))
        case "idle":
            node = idle_node(name, since)
        case "unsure":
            node = idle_node(name, idle_since=None)
        case "booting":
            node = booting_node(name, since)
        case "ready without GPUs":
            node = booting_node(name, timedelta(hours=3), ready_at=NOW - since)
        case _:
            node = booting_node(name, since, pods=1)
    return replace(node, draining=draw(st.integers(0, 9)) == 0)


@st.composite
def pools(draw: st.DrawFn, key: tuple[str, str]) -> PoolUse:
    there = draw(st.lists(nodes(), max_size=8, unique_by=lambda node: node.name))
    renamed = tuple(replace(node, name=f"{key[1]}-{node.name}") for node in there)
    most = draw(st.integers(1, 12))
    use = pool_use(
        *renamed, min_nodes=draw(st.integers(0, min(3, most))), max_nodes=most, wanted=draw(st.integers(0, 14))
    )
    return replace(use, pool=replace(use.pool, name=key[1]))


@st.composite
def jobs(draw: st.DrawFn) -> PendingJob:
    return pending_job(
        f"r{draw(st.integers(0, 10**6))}",
        gpus_per_node=draw(st.sampled_from([1, 2, 5, 8])),
        nodes=draw(st.integers(1, 9)),
        since=NOW - draw(st.integers(0, 50)) * MINUTE,
        priority=draw(st.sampled_from(list(Priority))),
        places=frozenset(draw(st.sets(st.sampled_from(KEYS), min_size=1))),
        backfill=draw(st.booleans()),
        hold_until=draw(st.sampled_from([None, NOW, NOW + MINUTE])),
    )


@st.composite
def orders(draw: st.DrawFn) -> ManualOrder:
    key = draw(st.sampled_from(KEYS))
    return manual_order(
        order=f"o{draw(st.integers(0, 99))}",
        kind=draw(st.sampled_from(list(OrderKind))),
        pool=key[1],
        nodes=draw(st.integers(0, 9)),
        base_nodes=draw(st.integers(0, 5)),
        remove=tuple(draw(st.lists(st.just(f"{key[1]}-n0000001"), max_size=1))),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> ScalingSnapshot:
    changed = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 20).map(lambda age: NOW - age * MINUTE))
    return scaling_snapshot(
        *(draw(pools(key)) for key in KEYS[: draw(st.integers(1, 2))]),
        unknown=draw(st.dictionaries(st.sampled_from(KEYS), st.just("HTTP 503"), max_size=1)),
        local=draw(st.sampled_from(POINTS)),
        cloud=draw(st.sampled_from(POINTS)),
        queue=tuple(draw(st.lists(jobs(), max_size=8, unique_by=lambda job: job.run))),
        orders=tuple(draw(st.lists(orders(), max_size=2, unique_by=lambda order: order.order))),
        last_out=draw(changed),
        last_in=draw(changed),
        money_left=draw(st.sampled_from([None, Decimal(0), Decimal(100), Decimal(10_000)])),
    )


@st.composite
def rules(draw: st.DrawFn) -> ScalingRules:
    window = WindowRule(iteration=Iteration(days=draw(st.sampled_from([7, 28]))), nodes=3)
    return replace(
        PRESETS[draw(st.sampled_from(sorted(PRESETS)))],
        window=draw(st.sampled_from([None, window])),
        largest_gap=HOUR,
    )


forecasts = st.dictionaries(
    st.sampled_from((*KEYS, ("", ""))),
    st.integers(0, 200).map(
        lambda gpus: Forecast(made_at=NOW, step=15 * MINUTE, quantiles=(0.9,), gpus=((gpus,),), model="now", reason="")
    ),
)


def targets(seen: ScalingSnapshot, plan: tuple[PoolTarget, ...]) -> Iterator[tuple[PoolUse, PoolTarget]]:
    """Each pool that is known, with its target."""
    by_key = {(target.cluster, target.pool): target for target in plan}
    for use in seen.pools:
        if (use.cluster, use.pool.name) not in seen.unknown:
            yield use, by_key[use.cluster, use.pool.name]


@OFTEN
@given(snapshots(), forecasts, rules())
def test_no_node_with_a_pod_ever_leaves_and_there_is_a_place_for_each(
    seen: ScalingSnapshot, ahead: dict[tuple[str, str], Forecast], by: ScalingRules
) -> None:
    plan = plan_scaling(seen, ahead, by)
    assert [(target.cluster, target.pool) for target in plan] == sorted(
        (use.cluster, use.pool.name) for use in seen.pools
    )
    for use, target in targets(seen, plan):
        with_pods = {node.name for node in use.nodes if node.pods}
        assert with_pods.isdisjoint(target.remove)
        assert target.nodes >= len(with_pods)
        assert set(target.remove) <= {node.name for node in use.nodes}
        assert len(set(target.remove)) == len(target.remove)


@OFTEN
@given(snapshots(), forecasts, rules())
def test_no_pool_grows_beyond_what_it_may_have_and_one_that_is_beyond_it_shrinks_to_its_pods(
    seen: ScalingSnapshot, ahead: dict[tuple[str, str], Forecast], by: ScalingRules
) -> None:
    for use, target in targets(seen, plan_scaling(seen, ahead, by)):
        with_pods = sum(1 for node in use.nodes if node.pods)
        spared = any(order.remove for order in seen.orders)  # only those that a person named may leave
        assert target.nodes <= max(use.pool.max_nodes, with_pods) or spared


@OFTEN
@given(snapshots(), forecasts, rules())
def test_a_plan_that_was_carried_out_is_followed_by_one_that_changes_nothing(
    seen: ScalingSnapshot, ahead: dict[tuple[str, str], Forecast], by: ScalingRules
) -> None:
    by = replace(by, cool_down_out=max(by.cool_down_out, MINUTE))  # the step of s2 is one of time, too
    stay = [tuple(node for node in use.nodes if node.pods or not node.draining) for use in seen.pools]
    seen = replace(seen, pools=tuple(replace(use, nodes=nodes) for use, nodes in zip(seen.pools, stay, strict=True)))
    before = plan_scaling(seen, ahead, by)
    after = plan_scaling(carried_out(seen, before), ahead, by)
    assert [(one.nodes, (), ()) for one in before] == [(one.nodes, one.remove, one.replaces) for one in after]


@OFTEN
@given(snapshots(), forecasts, rules(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_pools_jobs_and_orders_makes_no_difference(
    seen: ScalingSnapshot, ahead: dict[tuple[str, str], Forecast], by: ScalingRules, chance: random.Random
) -> None:
    def shuffled(values: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(chance.sample(values, len(values)))

    mixed = replace(
        seen,
        pools=shuffled(tuple(replace(use, nodes=shuffled(use.nodes)) for use in seen.pools)),
        queue=shuffled(seen.queue),
        orders=shuffled(seen.orders),
    )
    assert plan_scaling(mixed, ahead, by) == plan_scaling(seen, ahead, by)


def later(seen: ScalingSnapshot, minutes: int, used_gpus: int) -> ScalingSnapshot:
    """The same so many minutes later, while so much of on-premises is in use."""
    moments = [seen.taken_at + minute * MINUTE for minute in range(1, minutes + 1)]
    return replace(
        seen,
        taken_at=seen.taken_at + minutes * MINUTE,
        local=(*seen.local, *(replace(seen.local[-1], at=at, used_gpus=used_gpus) for at in moments)),
        cloud=(*seen.cloud, *(replace(seen.cloud[-1], at=at) for at in moments)),
    )


@st.composite
def calm(draw: st.DrawFn) -> tuple[ScalingSnapshot, ScalingRules]:
    """What a plan mostly changes nothing of: one pool with all of its nodes, and little that waits."""
    ages = st.integers(0, 60).map(lambda age: age * MINUTE)
    idle = st.builds(lambda at, age: idle_node(f"i{at}", age), st.integers(0, 99), ages)
    there = draw(st.lists(st.one_of(idle, idle, nodes()), min_size=1, max_size=4, unique_by=lambda node: node.name))
    changed = st.dictionaries(st.just(POOL), ages.map(lambda age: NOW - age))
    seen = scaling_snapshot(
        pool_use(*there),
        local=draw(st.sampled_from(POINTS)),
        cloud=draw(st.sampled_from(POINTS)),
        queue=tuple(draw(st.lists(jobs(), max_size=1))),
        last_out=draw(changed),
        last_in=draw(changed),
    )
    by = PRESETS[draw(st.sampled_from(sorted(PRESETS)))]
    return seen, replace(by, idle_release=draw(ages), largest_gap=HOUR, cool_down_in=draw(ages))


@OFTEN
@given(calm(), st.integers(1, 90), st.sampled_from([10, 50, 90]))
def test_a_plan_that_changes_nothing_changes_nothing_until_it_is_no_longer_steady(
    calm: tuple[ScalingSnapshot, ScalingRules], minutes: int, used_gpus: int
) -> None:
    seen, by = calm
    before = plan_scaling(seen, {}, by)
    until = steady_until(seen, by)
    if until is not None:
        minutes = min(minutes, -(-(until - seen.taken_at) // MINUTE) - 1)
    if minutes > 0 and not any(one.remove or one.nodes != len(seen.pools[0].nodes) for one in before):
        after = plan_scaling(later(seen, minutes, used_gpus), {}, by)
        assert [(one.nodes, one.remove) for one in before] == [(one.nodes, one.remove) for one in after]
