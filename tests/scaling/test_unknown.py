"""A pool of which nobody knows what it has: nothing is ordered of another one because it is missing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.model import Forecast, PoolUse
from spillway.scaling.ahead import EVERYWHERE
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT, S0, S2, THRIFTY
from spillway.scaling.rules import ForecastRule, ScalingRules, WindowRule
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    POOL,
    busy_node,
    idle_node,
    measured,
    pending_job,
    pending_jobs,
    pool_use,
    scaling_snapshot,
)
from spillway.windows import Iteration

OTHER = ("cloud", "a10")
BOTH = frozenset({POOL, OTHER})
LOST = {OTHER: "HTTP 503"}
HOUR = timedelta(hours=1)


def other(*names: str) -> PoolUse:
    use = pool_use(*(busy_node(name) for name in names))
    return replace(use, pool=replace(use.pool, name=OTHER[1]))


@pytest.mark.parametrize("rules", [DEFAULT, THRIFTY, S2], ids=["default", "thrifty", "s2"])
def test_a_job_that_may_go_to_the_unknown_pool_orders_nothing_elsewhere_and_others_do(rules: ScalingRules) -> None:
    local = measured(95)
    for jobs, known, lost in (
        (pending_jobs(5, places=BOTH), 5, 0),
        (pending_jobs(5), 5, 5),
        ((*pending_jobs(5), *(replace(job, run=f"b-{job.run}", places=BOTH) for job in pending_jobs(5))), 10, 5),
    ):
        seen = scaling_snapshot(pool_use(), queue=jobs, local=local)
        assert [target.nodes for target in plan_scaling(seen, {}, rules)] == [known]
        assert [target.nodes for target in plan_scaling(replace(seen, unknown=LOST), {}, rules)] == [lost]


def test_a_job_that_may_go_to_the_unknown_pool_still_keeps_the_idle_node_that_it_is_about_to_take() -> None:
    use = pool_use(idle_node("a", HOUR), idle_node("b", 2 * HOUR))
    seen = scaling_snapshot(use, queue=(pending_job(places=BOTH),), unknown=LOST)
    [target] = plan_scaling(seen, {}, DEFAULT)
    assert (target.nodes, target.remove) == (1, ("b",))


def test_what_is_foreseen_of_all_demand_orders_nothing_while_nobody_knows_what_a_pool_has() -> None:
    sees = Forecast(made_at=NOW, step=HOUR, quantiles=(0.9,), gpus=((108,),), model="now", reason="")
    rules = replace(DEFAULT, forecast=ForecastRule())
    seen = scaling_snapshot(pool_use(busy_node("a")), other(), local=measured(100))
    assert sum(target.nodes for target in plan_scaling(seen, {EVERYWHERE: sees}, rules)) > 0
    lost = replace(seen, pools=(pool_use(),), unknown=LOST)
    assert [target.nodes for target in plan_scaling(lost, {EVERYWHERE: sees}, rules)] == [0]
    own = replace(sees, gpus=((16,),))
    assert [target.nodes for target in plan_scaling(lost, {POOL: own}, rules)] == [2]


def test_the_utilisation_of_the_cloud_neither_grows_nor_shrinks_a_pool_while_another_one_is_unknown() -> None:
    busy = scaling_snapshot(pool_use(busy_node("a")), cloud=measured(8, 8))
    quiet = scaling_snapshot(pool_use(*(idle_node(name, HOUR) for name in "abcd")), cloud=measured(0, 32))
    for seen, sized in ((busy, 2), (quiet, 0)):
        assert [target.nodes for target in plan_scaling(seen, {}, replace(S0, idle_release=None))] == [sized]
        before = len(seen.pools[0].nodes)
        lost = replace(seen, unknown=LOST)
        assert [target.nodes for target in plan_scaling(lost, {}, replace(S0, idle_release=None))] == [before]


def test_a_window_of_the_cheapest_pool_orders_nothing_while_another_one_is_unknown_and_keeps_its_nodes() -> None:
    at = datetime(2026, 1, 26, 12, tzinfo=UTC)
    window = WindowRule(iteration=Iteration())
    nodes = tuple(idle_node(f"n{number}", idle_since=at - HOUR, created_at=at - HOUR) for number in range(4))
    seen = scaling_snapshot(pool_use(*nodes), taken_at=at, base_nodes={POOL: 0})
    rules = replace(DEFAULT, window=window)
    assert [target.nodes for target in plan_scaling(seen, {}, rules)] == [10]
    lost = replace(seen, unknown=LOST)
    assert [(target.nodes, target.remove) for target in plan_scaling(lost, {}, rules)] == [(4, ())]
    named = replace(rules, window=replace(window, place=POOL))
    assert [target.nodes for target in plan_scaling(lost, {}, named)] == [10]
