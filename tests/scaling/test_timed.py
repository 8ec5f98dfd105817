"""Rules by the clock on the wall: nodes for the window of a month, idle nodes leave at night; the window wins."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.model import Forecast, OffPeak, ScalableNode, ScalingSnapshot
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT, S2
from spillway.scaling.rules import ForecastRule, ScalingRules, WindowRule
from spillway.scaling.timed import began_at, release_reason, window_at
from spillway.testing.elastic import MINUTE, POOL, busy_node, idle_node, pending_jobs, pool_use, scaling_snapshot
from spillway.windows import Iteration

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
BERLIN = "Europe/Berlin"
NIGHT = OffPeak(begins=2 * HOUR, ends=6 * HOUR, time_zone=BERLIN)
MONTHLY = WindowRule(iteration=Iteration(time_zone=BERLIN))
RULES = replace(S2, window=MONTHLY, release_hours=NIGHT)

BEGINS = datetime(2026, 1, 24, 23, tzinfo=UTC)
"""The last seven days of January are the 25th to the 31st; Berlin is an hour ahead of UTC."""
ENDS = datetime(2026, 1, 31, 23, tzinfo=UTC)
DAY_BEFORE = BEGINS - timedelta(hours=24)


def planned(seen: ScalingSnapshot, at: datetime, rules: ScalingRules = RULES) -> tuple[int, tuple[str, ...]]:
    [target] = plan_scaling(replace(seen, taken_at=at), {}, rules)
    return target.nodes, target.remove


def idle_at(at: datetime, *names: str, idle: timedelta = MINUTE) -> tuple[ScalableNode, ...]:
    return tuple(idle_node(name, idle_since=at - idle, created_at=at - HOUR) for name in names)


@pytest.mark.parametrize(
    ("at", "nodes"),
    [(DAY_BEFORE - SECOND, 2), (DAY_BEFORE, 12), (BEGINS, 12), (ENDS - SECOND, 12), (ENDS, 2)],
    ids=["before", "24 hours before", "it begins", "its last second", "it has ended"],
)
def test_a_window_has_ten_nodes_more_from_24_hours_before_until_it_ends(at: datetime, nodes: int) -> None:
    seen = scaling_snapshot(pool_use(busy_node("a"), busy_node("b")), base_nodes={POOL: 2})
    assert planned(seen, at)[0] == nodes


def test_the_nodes_of_a_window_are_beside_those_of_before_whatever_runs_on_them() -> None:
    nodes = tuple(busy_node(f"n{number}") for number in range(12))
    assert planned(scaling_snapshot(pool_use(*nodes), base_nodes={POOL: 2}), BEGINS) == (12, ())
    assert planned(scaling_snapshot(pool_use(*nodes), base_nodes={POOL: 3}), BEGINS) == (13, ())


def test_where_nobody_knows_how_many_there_were_the_least_of_the_pool_counts() -> None:
    assert planned(scaling_snapshot(pool_use(min_nodes=1)), BEGINS)[0] == 11
    assert planned(scaling_snapshot(pool_use()), BEGINS)[0] == 10


@pytest.mark.parametrize(
    ("at", "nodes"),
    [(BEGINS, 10), (ENDS - SECOND, 10), (ENDS, 0), (ENDS + HOUR - SECOND, 0), (ENDS + HOUR, 10)],
    ids=["it begins", "its last second", "it has ended", "the last second of shrinking", "as all others"],
)
def test_the_nodes_of_a_window_stay_while_it_lasts_and_then_leave_as_they_are_idle(at: datetime, nodes: int) -> None:
    use = pool_use(*idle_at(at, *(f"n{number}" for number in range(10))))
    assert planned(scaling_snapshot(use, base_nodes={POOL: 0}), at)[0] == nodes


def test_a_window_in_the_past_orders_nothing_whatever_its_backfill_wants() -> None:
    at = DAY_BEFORE - HOUR
    assert planned(scaling_snapshot(pool_use(), queue=pending_jobs(9, backfill=True)), at) == (0, ())


def test_a_window_is_of_the_pool_that_is_named_or_of_the_cheapest() -> None:
    other = replace(pool_use().pool, name="a10", prices_per_gpu_hour={})
    seen = scaling_snapshot(pool_use(pool=other), pool_use(), taken_at=BEGINS)
    assert [target.nodes for target in plan_scaling(seen, {}, RULES)] == [0, 10]
    named = replace(RULES, window=replace(MONTHLY, place=("cloud", "a10")))
    assert [target.nodes for target in plan_scaling(seen, {}, named)] == [10, 0]


def test_since_when_a_window_asks_for_its_nodes() -> None:
    assert began_at(RULES, DAY_BEFORE - SECOND) is None
    assert began_at(RULES, DAY_BEFORE) == began_at(RULES, ENDS - SECOND) == DAY_BEFORE
    assert began_at(RULES, ENDS) is None
    assert began_at(S2, BEGINS) is None


def test_the_clocks_of_the_zone_decide_when_a_window_begins() -> None:
    march = [datetime(2026, 3, 24, 23, tzinfo=UTC), datetime(2026, 3, 31, 22, tzinfo=UTC)]
    window = window_at(MONTHLY, march[0])
    assert window is not None and [window.starts_at, window.ends_at] == march
    assert window_at(MONTHLY, march[1] - SECOND) == window
    assert window_at(MONTHLY, march[1]) is None


@pytest.mark.parametrize(
    ("at", "nodes"),
    [
        (datetime(2026, 1, 6, 0, 59, 59, tzinfo=UTC), 2),
        (datetime(2026, 1, 6, 1, 0, tzinfo=UTC), 0),
        (datetime(2026, 1, 6, 4, 59, 59, tzinfo=UTC), 0),
        (datetime(2026, 1, 6, 5, 0, tzinfo=UTC), 2),
        (datetime(2026, 7, 6, 0, 0, tzinfo=UTC), 0),
        (datetime(2026, 7, 6, 4, 0, tzinfo=UTC), 2),
    ],
    ids=["01:59:59", "02:00", "05:59:59", "06:00", "02:00 in summer", "06:00 in summer"],
)
def test_idle_nodes_leave_between_two_and_six_by_the_clocks_of_the_zone(at: datetime, nodes: int) -> None:
    assert planned(scaling_snapshot(pool_use(*idle_at(at, "a", "b"))), at)[0] == nodes


@pytest.mark.parametrize(
    ("first", "last"),
    [
        (datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 3, 29, 4, tzinfo=UTC)),
        (datetime(2026, 10, 25, 1, tzinfo=UTC), datetime(2026, 10, 25, 5, tzinfo=UTC)),
    ],
    ids=["02:00 is not there", "02:00 is there twice"],
)
def test_in_the_night_of_a_clock_change_no_moment_counts_that_may_be_outside(first: datetime, last: datetime) -> None:
    rules = replace(S2, release_hours=NIGHT)
    assert [release_reason(rules, at) is not None for at in (first - SECOND, first, last - SECOND, last)] == [
        False,
        True,
        True,
        False,
    ]


def test_at_night_nodes_with_pods_and_those_that_a_job_is_about_to_take_stay() -> None:
    at = datetime(2026, 1, 6, 2, tzinfo=UTC)
    use = pool_use(*idle_at(at, "a"), *idle_at(at, "old", idle=5 * MINUTE), busy_node("b"))
    assert planned(scaling_snapshot(use, queue=pending_jobs(1)), at) == (2, ("old",))


def test_at_night_idle_nodes_leave_whatever_a_forecast_says_and_the_queue_is_served() -> None:
    at = datetime(2026, 1, 6, 1, tzinfo=UTC)
    rules = replace(DEFAULT, release_hours=NIGHT, forecast=ForecastRule())
    sees_two = {POOL: Forecast(made_at=at - SECOND, step=HOUR, quantiles=(0.9,), gpus=((16,),), model="now", reason="")}
    idle = scaling_snapshot(pool_use(*idle_at(at, "a", "b", idle=20 * MINUTE)))
    [by_day] = plan_scaling(replace(idle, taken_at=at - SECOND), sees_two, rules)
    [at_night] = plan_scaling(replace(idle, taken_at=at), sees_two, rules)
    assert (by_day.nodes, at_night.nodes, at_night.remove) == (2, 0, ("a", "b"))
    assert planned(scaling_snapshot(pool_use(), queue=pending_jobs(3)), at, rules) == (3, ())
    gang = pending_jobs(1, nodes=2)
    assert planned(scaling_snapshot(pool_use(*idle_at(at, "a")), queue=gang), at, rules) == (2, ())


def test_a_window_wins_over_the_night_and_what_is_idle_beyond_it_leaves() -> None:
    at = datetime(2026, 1, 26, 2, tzinfo=UTC)
    assert BEGINS < at < ENDS and release_reason(RULES, at) is not None
    ten = pool_use(*idle_at(at, *(f"n{number}" for number in range(10))))
    assert planned(scaling_snapshot(ten, base_nodes={POOL: 0}), at) == (10, ())
    twelve = pool_use(*ten.nodes, *idle_at(at, "x", "y", idle=5 * MINUTE))
    assert planned(scaling_snapshot(twelve, base_nodes={POOL: 0}), at) == (10, ("x", "y"))
