"""A forecast asks for nodes before the jobs are there; one that says nothing about now asks for none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spillway.model import Contribution, Forecast, Source
from spillway.scaling.ahead import EVERYWHERE, gpus_wanted
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT
from spillway.scaling.rules import ForecastRule
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    POOL,
    busy_node,
    carried_out,
    idle_node,
    measured,
    pending_jobs,
    pool_use,
    scaling_snapshot,
)

QUARTER = 15 * MINUTE
RULE = ForecastRule(quantile=0.9, ahead=QUARTER)
RULES = replace(DEFAULT, forecast=RULE)


def forecast(*gpus: int, **fields: Any) -> Forecast:
    """So many GPUs at each quarter of an hour after now; the median is half of the 0.9 quantile."""
    made = Forecast(
        made_at=NOW,
        step=QUARTER,
        quantiles=(0.5, 0.9),
        gpus=tuple((number // 2, number) for number in gpus),
        model="now",
        reason="",
    )
    return replace(made, **fields)


@pytest.mark.parametrize(
    ("ahead", "age", "gpus"),
    [
        (QUARTER, timedelta(), 10),
        (QUARTER + timedelta(seconds=1), timedelta(), 20),
        (2 * QUARTER, timedelta(), 20),
        (3 * QUARTER, timedelta(), 20),
        (timedelta(), timedelta(), 10),
        (QUARTER, MINUTE, 20),
        (QUARTER, QUARTER, 20),
        (timedelta(), QUARTER, 10),
        (timedelta(), QUARTER + MINUTE, 20),
        (QUARTER, 2 * QUARTER, 20),
        (QUARTER, 2 * QUARTER + MINUTE, 15),
        (QUARTER, 3 * QUARTER, 15),
        (QUARTER, 3 * QUARTER + MINUTE, None),
    ],
)
def test_the_most_that_is_foreseen_within_the_time_counts(ahead: timedelta, age: timedelta, gpus: int | None) -> None:
    rule = replace(RULE, ahead=ahead)
    assert gpus_wanted(forecast(10, 20, 15), rule, NOW + age) == gpus


@pytest.mark.parametrize(("quantile", "gpus"), [(0.4, 5), (0.5, 5), (0.51, 10), (0.9, 10), (0.95, 10)])
def test_the_quantile_or_the_next_higher_one_counts(quantile: float, gpus: int) -> None:
    assert gpus_wanted(forecast(10), replace(RULE, quantile=quantile), NOW) == gpus


def test_what_a_pool_is_foreseen_to_be_asked_for_is_there_before_it_is_asked() -> None:
    [target] = plan_scaling(scaling_snapshot(pool_use()), {POOL: forecast(17)}, RULES)
    assert target.nodes == 3
    assert target.contributions[1] == Contribution(
        source=Source.FORECAST, nodes=3, reason="17 GPUs here, by the quantile 0.9 of the next 15 min (now)"
    )


def test_of_all_demand_what_on_premises_cannot_have_is_the_clouds() -> None:
    seen = scaling_snapshot(pool_use(), local=measured(100, 100))
    [target] = plan_scaling(seen, {EVERYWHERE: forecast(117)}, RULES)
    assert (target.nodes, target.contributions[1].reason) == (
        3,
        "117 GPUs, of which 100 on-premises and 0 in other pools, by the quantile 0.9 of the next 15 min (now)",
    )
    [target] = plan_scaling(seen, {EVERYWHERE: forecast(90)}, RULES)
    assert target.nodes == 0


def test_the_reason_tells_why_this_model_was_chosen_and_which_quantile_it_is() -> None:
    made = replace(forecast(17), reason="15 min ahead: now lost 2.00 GPUs in the backtest")
    rules = replace(RULES, forecast=replace(RULE, quantile=0.4))
    [target] = plan_scaling(scaling_snapshot(pool_use()), {POOL: made}, rules)
    assert target.contributions[1].reason == (
        "8 GPUs here, by the quantile 0.5 of the next 15 min (now; 15 min ahead: now lost 2.00 GPUs in the backtest)"
    )


def test_what_waits_for_on_premises_alone_is_in_the_demand_and_has_no_nodes_ordered_for_it() -> None:
    home = pending_jobs(2, places=frozenset({("onprem", "a100")}))
    seen = scaling_snapshot(pool_use(), local=measured(100, 100), queue=home)
    [target] = plan_scaling(seen, {EVERYWHERE: forecast(117)}, RULES)
    assert (target.nodes, target.contributions[1].reason) == (
        1,
        "117 GPUs, of which 100 on-premises and 0 in other pools, and 16 wait for on-premises alone, "
        "by the quantile 0.9 of the next 15 min (now)",
    )


def test_the_other_pools_of_the_cloud_count_too() -> None:
    other = replace(pool_use().pool, name="a10", prices_per_gpu_hour={})
    seen = scaling_snapshot(pool_use(), pool_use(busy_node("a"), pool=other), local=measured(100, 100))
    assert [target.nodes for target in plan_scaling(seen, {EVERYWHERE: forecast(117)}, RULES)] == [1, 2]


def test_all_demand_says_nothing_while_nobody_knows_the_size_of_on_premises() -> None:
    old = tuple(point for point in measured(100, 100) if NOW - point.at > 2 * MINUTE)
    for local in ((), old):
        [target] = plan_scaling(scaling_snapshot(pool_use(), local=local), {EVERYWHERE: forecast(117)}, RULES)
        assert (target.nodes, len(target.contributions)) == (0, 1)


def test_a_forecast_that_has_ended_says_nothing() -> None:
    seen = scaling_snapshot(pool_use(), taken_at=NOW + 2 * QUARTER)
    [target] = plan_scaling(seen, {POOL: forecast(17)}, RULES)
    assert (target.nodes, len(target.contributions)) == (0, 1)


def test_the_higher_of_queue_and_forecast_counts_and_never_their_sum() -> None:
    seen = scaling_snapshot(pool_use(), queue=pending_jobs(2))
    assert [plan_scaling(seen, {POOL: forecast(gpus)}, RULES)[0].nodes for gpus in (8, 16, 24)] == [2, 2, 3]


def test_idle_nodes_that_are_foreseen_to_be_needed_stay() -> None:
    use = pool_use(*(idle_node(f"n{number}", (20 + number) * MINUTE) for number in range(3)))
    [target] = plan_scaling(scaling_snapshot(use), {POOL: forecast(16)}, RULES)
    assert (target.nodes, target.remove) == (2, ("n2",))


def test_what_a_forecast_ordered_is_not_ordered_again_and_waits_for_the_pool_to_cool_down() -> None:
    rules = replace(RULES, cool_down_out=5 * MINUTE)
    seen = scaling_snapshot(pool_use())
    once = carried_out(seen, plan_scaling(seen, {POOL: forecast(16)}, rules))
    assert [plan_scaling(once, {POOL: forecast(gpus)}, rules)[0].nodes for gpus in (16, 24)] == [2, 2]
    later = replace(once, last_out={POOL: NOW - 5 * MINUTE})
    assert plan_scaling(later, {POOL: forecast(24)}, rules)[0].nodes == 3


def test_rules_without_a_forecast_do_not_look_at_one() -> None:
    [target] = plan_scaling(scaling_snapshot(pool_use()), {POOL: forecast(17)}, replace(RULES, forecast=None))
    assert (target.nodes, len(target.contributions)) == (0, 1)
