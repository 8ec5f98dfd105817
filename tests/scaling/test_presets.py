"""What the presets of our own do at each of their figures: whoever changes one sees what it moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.migration import MoveFacts
from spillway.model import Ending, Forecast
from spillway.scaling.ahead import EVERYWHERE
from spillway.scaling.packing import FreeNodes
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT, THRIFTY
from spillway.scaling.returning import BoughtRun, plan_returns
from spillway.scaling.rules import ScalingRules
from spillway.scaling.waiting import hold_until
from spillway.testing.builders import NOW, job_spec
from spillway.testing.elastic import MINUTE, POOL, idle_node, measured, pending_job, pool_use, scaling_snapshot

SECOND, HOUR, HOME = timedelta(seconds=1), timedelta(hours=1), ("onprem", "a100")
RUN = BoughtRun(
    run="r1",
    gpus_per_node=8,
    nodes=1,
    since=NOW,
    trained=HOUR,
    expected=10 * HOUR,
    neighbours=0,
    facts=MoveFacts(
        image_bytes=0,
        dataset_bytes=0,
        missing_checkpoint_bytes=0,
        checkpoint_bytes=0,
        flush=MINUTE,
        grace=2 * MINUTE,
        restart=5 * MINUTE,
        steps_at_risk=0,
        egress_price_per_gib=Decimal(0),
        brought_egress=Decimal(0),
        price_here=Decimal(8),
        price_there=Decimal("2.5"),
    ),
)
OURS = pytest.mark.parametrize("rules", [DEFAULT, THRIFTY], ids=["default", "thrifty"])


@OURS
def test_nodes_are_ordered_for_what_waits_as_soon_as_it_waits(rules: ScalingRules) -> None:
    [target] = plan_scaling(scaling_snapshot(pool_use(), queue=(pending_job(since=NOW),)), {}, rules)
    assert target.nodes == 1


@OURS
@pytest.mark.parametrize(("ends", "nodes"), [(7.5 * MINUTE, 0), (7.5 * MINUTE + SECOND, 1)])
def test_no_nodes_are_ordered_for_what_has_room_on_premises_in_seven_and_a_half_minutes(
    rules: ScalingRules, ends: timedelta, nodes: int
) -> None:
    job = pending_job(places=frozenset({POOL, HOME}))
    ending = Ending(at=NOW + ends, place=HOME, gpus_per_node=8, nodes=1)
    [target] = plan_scaling(scaling_snapshot(pool_use(), queue=(job,), endings=(ending,)), {}, rules)
    assert target.nodes == nodes


@OURS
@pytest.mark.parametrize(("idle", "nodes"), [(2 * MINUTE - SECOND, 1), (2 * MINUTE, 0)])
def test_a_node_that_nobody_needs_leaves_after_two_minutes(rules: ScalingRules, idle: timedelta, nodes: int) -> None:
    [target] = plan_scaling(scaling_snapshot(pool_use(idle_node("a", idle))), {}, rules)
    assert target.nodes == nodes


@OURS
def test_nodes_come_before_what_is_wanted_within_a_quarter_of_an_hour_in_nineteen_of_twenty_cases(
    rules: ScalingRules,
) -> None:
    seen = Forecast(
        made_at=NOW,
        step=15 * MINUTE,
        quantiles=(0.04, 0.05, 0.5),
        gpus=((17, 26, 50), (100, 110, 120)),
        model="now",
        reason="",
    )
    snapshot = scaling_snapshot(pool_use(), local=measured(10, 10))
    [target] = plan_scaling(snapshot, {EVERYWHERE: seen}, rules)
    assert target.nodes == 2


@pytest.mark.parametrize(
    ("rules", "gpus", "expected", "wait"),
    [
        pytest.param(
            DEFAULT, 8, 12.5 * HOUR, 50 * HOUR, id="default: 100 GPU-hours wait four times as long as they take"
        ),
        pytest.param(DEFAULT, 8, 12.5 * HOUR - SECOND, 0 * HOUR, id="default: a little less does not wait"),
        pytest.param(DEFAULT, 7, 100 * HOUR, 0 * HOUR, id="default: a narrow job does not wait"),
        pytest.param(DEFAULT, 8, 100 * HOUR, 72 * HOUR, id="default: nobody waits longer than three days"),
        pytest.param(
            THRIFTY, 8, 50 * HOUR, 200 * HOUR, id="thrifty: 400 GPU-hours wait four times as long as they take"
        ),
        pytest.param(THRIFTY, 8, 50 * HOUR - SECOND, 0 * HOUR, id="thrifty: a little less does not wait"),
        pytest.param(THRIFTY, 8, 100 * HOUR, 240 * HOUR, id="thrifty: nobody waits longer than ten days"),
        pytest.param(THRIFTY, 7, 100 * HOUR, 0 * HOUR, id="thrifty: a narrow job does not wait"),
    ],
)
def test_wide_jobs_that_take_long_wait_for_on_premises(
    rules: ScalingRules, gpus: int, expected: timedelta, wait: timedelta
) -> None:
    assert rules.waiting is not None
    assert hold_until(job_spec(gpus_per_node=gpus, expected_duration=expected), NOW, rules.waiting) == NOW + wait


@OURS
@pytest.mark.parametrize(("here", "goes"), [(10 * MINUTE - SECOND, False), (10 * MINUTE, True)])
def test_a_run_goes_back_once_it_has_been_in_the_cloud_for_ten_minutes(
    rules: ScalingRules, here: timedelta, goes: bool
) -> None:
    assert rules.returning is not None
    run = replace(RUN, since=NOW - here)
    assert bool(plan_returns([run], FreeNodes((8,)), rules.returning, NOW)) is goes
