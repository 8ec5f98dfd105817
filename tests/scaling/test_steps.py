"""The preset s2: steps of 5 to 10 nodes while on-premises is full and jobs wait; idle nodes leave after an hour."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from spillway.model import PendingJob, ScalingSnapshot
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import S2
from spillway.scaling.rules import ScalingRules, StepRule
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    POOL,
    busy_node,
    carried_out,
    idle_node,
    measured,
    pending_job,
    pending_jobs,
    pool_use,
    scaling_snapshot,
)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TO_THE_LETTER = replace(S2, idle_release=None)


def full(*queue: PendingJob, used_gpus: int = 85, ago: timedelta = 5 * MINUTE) -> ScalingSnapshot:
    return scaling_snapshot(pool_use(), local=measured(used_gpus, ago=ago), queue=queue)


def planned(seen: ScalingSnapshot, rules: ScalingRules = S2) -> int:
    [target] = plan_scaling(seen, {}, rules)
    return target.nodes


@pytest.mark.parametrize(
    ("used_gpus", "ago", "jobs", "nodes"),
    [
        (85, 5 * MINUTE, 5, 5),
        (84, 5 * MINUTE, 5, 0),
        (85, 5 * MINUTE - 30 * SECOND, 5, 0),
        (85, 5 * MINUTE, 4, 0),
        (100, HOUR, 5, 5),
    ],
    ids=["exactly", "84 %", "4.5 minutes", "queue of 4", "far beyond"],
)
def test_it_grows_at_85_percent_for_5_minutes_and_a_queue_of_5(
    used_gpus: int, ago: timedelta, jobs: int, nodes: int
) -> None:
    assert planned(full(*pending_jobs(jobs, gpus_per_node=1), used_gpus=used_gpus, ago=ago)) == nodes


@pytest.mark.parametrize(("gpus", "nodes"), [(5, 5), (40, 5), (41, 6), (48, 6), (49, 7), (80, 10), (81, 10), (400, 10)])
def test_a_step_is_what_the_waiting_gpus_need_within_5_and_10(gpus: int, nodes: int) -> None:
    assert planned(full(*pending_jobs(gpus, gpus_per_node=1))) == nodes


@pytest.mark.parametrize(("nodes_of_the_job", "nodes"), [(8, 8), (5, 5), (4, 0)], ids=["64 GPUs", "40 GPUs", "32 GPUs"])
def test_one_job_that_fills_a_step_counts_as_a_queue(nodes_of_the_job: int, nodes: int) -> None:
    assert planned(full(pending_job(nodes=nodes_of_the_job))) == nodes


def test_it_says_why() -> None:
    [target] = plan_scaling(full(pending_job(nodes=8)), {}, S2)
    assert target.contributions[0].reason == (
        "8 more: on-premises at 85 % or above for 5 min, 1 job waiting, no room for 64 GPUs: a step of 8"
    )


def test_what_is_on_order_counts_so_that_a_step_is_not_repeated() -> None:
    seen = full(*pending_jobs(9))
    once = carried_out(seen, plan_scaling(seen, {}, S2))
    assert planned(once) == 9
    assert planned(replace(once, last_out={})) == 9


def test_the_next_step_comes_five_minutes_after_the_last() -> None:
    seen = full(*pending_jobs(15))
    once = carried_out(seen, plan_scaling(seen, {}, S2))
    assert planned(once) == 10
    assert planned(replace(once, last_out={POOL: NOW - 5 * MINUTE + SECOND})) == 10
    assert planned(replace(once, last_out={POOL: NOW - 5 * MINUTE})) == 15


def test_jobs_that_hold_or_are_of_the_past_are_no_queue() -> None:
    held = pending_jobs(9, hold_until=NOW + SECOND)
    assert planned(full(*held)) == 0
    assert planned(full(*pending_jobs(9, backfill=True))) == 0


def idle(used_gpus: int, idle_for: timedelta, *, ago: timedelta = HOUR) -> ScalingSnapshot:
    use = pool_use(idle_node("old", idle_for), idle_node("new", MINUTE), busy_node("b"))
    return scaling_snapshot(use, local=measured(used_gpus, ago=ago))


@pytest.mark.parametrize(
    ("used_gpus", "ago", "idle_for", "nodes"),
    [
        (40, 10 * MINUTE, HOUR, 2),
        (41, 10 * MINUTE, HOUR, 3),
        (40, 10 * MINUTE - 30 * SECOND, HOUR, 3),
        (40, 10 * MINUTE, HOUR - SECOND, 3),
    ],
    ids=["exactly", "41 %", "9.5 minutes", "idle a second less"],
)
def test_to_the_letter_it_shrinks_at_40_percent_for_10_minutes_by_what_is_idle_for_an_hour(
    used_gpus: int, ago: timedelta, idle_for: timedelta, nodes: int
) -> None:
    assert planned(idle(used_gpus, idle_for, ago=ago), TO_THE_LETTER) == nodes


@pytest.mark.parametrize("used_gpus", [0, 40, 41, 60, 84, 85, 100])
def test_idle_nodes_leave_after_an_hour_whatever_on_premises_does(used_gpus: int) -> None:
    assert planned(idle(used_gpus, HOUR)) == 2
    assert planned(idle(used_gpus, HOUR - SECOND)) == 3


def test_idle_nodes_leave_the_oldest_first() -> None:
    nodes = (idle_node("b", 2 * HOUR), idle_node("c", HOUR), idle_node("a", 2 * HOUR), idle_node("d", 3 * HOUR))
    [target] = plan_scaling(scaling_snapshot(pool_use(*nodes)), {}, S2)
    assert target.remove == ("d", "a", "b", "c")


def test_on_premises_that_nobody_measures_orders_nothing() -> None:
    assert planned(replace(full(*pending_jobs(9)), local=())) == 0
    hole = tuple(point for point in measured(100) if not MINUTE <= NOW - point.at <= 3 * MINUTE)
    assert planned(replace(full(*pending_jobs(9)), local=hole)) == 0


@pytest.mark.parametrize(("least", "most"), [(0, 10), (6, 5)])
def test_a_step_without_sense_is_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match=f"expected 1 <= least <= most, got {least} and {most}"):
        StepRule(least=least, most=most)


def test_its_numbers_are_those_of_the_text() -> None:
    assert S2.reactive == StepRule(
        out_from=Fraction(85, 100),
        out_after=5 * MINUTE,
        queue=5,
        least=5,
        most=10,
        in_to=Fraction(40, 100),
        in_after=10 * MINUTE,
        in_idle=HOUR,
    )
