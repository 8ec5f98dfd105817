"""The preset s0: out above 80 % for 3 minutes, to the target in exact arithmetic; in below 30 % for 30 minutes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from spillway.model import ScalableNode, ScalingSnapshot
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import S0
from spillway.scaling.reactive import gpus_to_add
from spillway.scaling.rules import UtilisationRule
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    POOL,
    booting_node,
    busy_node,
    carried_out,
    idle_node,
    measured,
    pending_job,
    pending_jobs,
    pool_use,
    scaling_snapshot,
)

TEN_BUSY = tuple(busy_node(f"n{number}") for number in range(10))


def cloud(
    used_gpus: int, gpus: int = 80, *, ago: timedelta = 3 * MINUTE, nodes: tuple[ScalableNode, ...] = TEN_BUSY
) -> ScalingSnapshot:
    return scaling_snapshot(pool_use(*nodes), cloud=measured(used_gpus, gpus, ago=ago))


def planned(seen: ScalingSnapshot) -> int:
    [target] = plan_scaling(seen, {}, S0)
    return target.nodes


@pytest.mark.parametrize(
    ("utilisation", "target", "gpus", "more"),
    [
        ("0.77", "0.70", 10, 1),
        ("0.7700001", "0.70", 10, 2),
        ("0.70", "0.70", 10, 0),
        ("0.35", "0.70", 10, -5),
        ("1", "0.70", 80, 35),
        ("0.9", "0.7", 0, 0),
    ],
)
def test_the_formula_is_exact(utilisation: str, target: str, gpus: int, more: int) -> None:
    assert gpus_to_add(Fraction(utilisation), Fraction(target), gpus) == more


def test_a_target_of_0_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a target above 0, got 0"):
        UtilisationRule(target=Fraction(0))


def test_it_grows_to_the_target_and_says_why() -> None:
    [target] = plan_scaling(cloud(80), {}, S0)
    assert target.nodes == 15
    assert target.contributions[0].reason == (
        "5 more: cloud GPUs above 80 % for 3 min: 80 of 80 in use, 70 % is the target, so 35 more"
    )


@pytest.mark.parametrize(("used_gpus", "nodes"), [(64, 10), (65, 12)], ids=["80 %", "above 80 %"])
def test_80_percent_is_not_above_80_percent(used_gpus: int, nodes: int) -> None:
    assert planned(cloud(used_gpus)) == nodes  # 65 / 0.7 = 92.9 GPUs: 13 more, two nodes


@pytest.mark.parametrize(("ago", "nodes"), [(3 * MINUTE, 15), (3 * MINUTE - timedelta(seconds=30), 10)])
def test_it_grows_after_three_minutes_and_no_sooner(ago: timedelta, nodes: int) -> None:
    assert planned(cloud(80, ago=ago)) == nodes


def test_it_does_not_grow_where_nobody_measures_any_more() -> None:
    seen = cloud(80)
    assert planned(replace(seen, taken_at=NOW + timedelta(seconds=90))) == 15
    assert planned(replace(seen, taken_at=NOW + timedelta(seconds=91))) == 10


def test_nodes_that_boot_or_are_on_order_count() -> None:
    use = pool_use(*TEN_BUSY, booting_node("new"), wanted=13)
    assert planned(replace(cloud(80), pools=(use,))) == 15
    use = pool_use(*TEN_BUSY, booting_node("new"), wanted=15)
    assert planned(replace(cloud(80), pools=(use,))) == 15


def test_it_cools_down_for_three_minutes_after_it_grew() -> None:
    fifteen = tuple(busy_node(f"n{number}") for number in range(15))
    seen = cloud(120, 120, nodes=fifteen)  # 120 / 0.7 = 171.4 GPUs: 52 more
    assert planned(replace(seen, last_out={POOL: NOW - 3 * MINUTE + timedelta(seconds=1)})) == 15
    assert planned(replace(seen, last_out={POOL: NOW - 3 * MINUTE})) == 22


def test_a_plan_that_was_carried_out_is_not_made_again() -> None:
    seen = cloud(80)
    once = carried_out(seen, plan_scaling(seen, {}, S0))
    assert planned(replace(once, last_out={})) == 15


IDLE = tuple(idle_node(f"i{number}", number * MINUTE) for number in range(8))
"""Two busy nodes beside them are 16 of 80 GPUs, 20 %; 16 / 0.7 = 22.9 GPUs are to stay, three nodes."""


@pytest.mark.parametrize(
    ("used_gpus", "ago", "nodes"),
    [
        (16, timedelta(minutes=30), 3),
        (16, timedelta(minutes=29, seconds=30), 10),
        (24, timedelta(minutes=30), 10),
        (23, timedelta(minutes=30), 5),
    ],
    ids=["30 minutes", "a point less", "30 %", "below 30 %"],
)
def test_it_shrinks_to_the_target_below_30_percent_for_30_minutes(used_gpus: int, ago: timedelta, nodes: int) -> None:
    assert planned(cloud(used_gpus, ago=ago, nodes=(*TEN_BUSY[:2], *IDLE))) == nodes


def test_the_oldest_idle_leave_first_and_none_with_a_pod() -> None:
    [target] = plan_scaling(cloud(16, ago=timedelta(minutes=30), nodes=(*TEN_BUSY[:2], *IDLE)), {}, S0)
    assert target.remove == ("i7", "i6", "i5", "i4", "i3", "i2", "i1")
    [target] = plan_scaling(cloud(0, ago=timedelta(minutes=30), nodes=TEN_BUSY), {}, S0)
    assert (target.nodes, target.remove) == (10, ())


def test_all_leave_where_none_is_in_use() -> None:
    assert planned(cloud(0, 64, ago=timedelta(minutes=30), nodes=IDLE)) == 0


def test_a_pool_without_nodes_begins_with_those_for_what_waits() -> None:
    nothing = measured(0, 0)
    gang = pending_job(gpus_per_node=8, nodes=8)
    assert planned(scaling_snapshot(pool_use(), cloud=nothing, queue=(gang,))) == 8
    assert planned(scaling_snapshot(pool_use(), cloud=nothing, queue=pending_jobs(1, gpus_per_node=1))) == 1
    assert planned(scaling_snapshot(pool_use(), cloud=nothing)) == 0
    assert planned(scaling_snapshot(pool_use(wanted=8), cloud=nothing, queue=(gang,))) == 8


def test_what_one_pool_may_not_have_is_the_next_ones() -> None:
    other = replace(pool_use().pool, name="zz", max_nodes=3)
    seen = scaling_snapshot(pool_use(*TEN_BUSY, max_nodes=12), pool_use(pool=other), cloud=measured(80, 80))
    plan = plan_scaling(seen, {}, S0)
    assert [target.nodes for target in plan] == [12, 3]
    assert [target.nodes for target in plan_scaling(carried_out(seen, plan), {}, S0)] == [12, 3]
