"""A forced shrink: who leaves, whose run moves or pauses, what is lost and what it saves."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spillway.model import Billing, Candidate, Priority
from spillway.scaling.shrinking import (
    Departure,
    Fate,
    PlacedRun,
    ShrinkPlan,
    Way,
    choose_leaving,
    nodes_of,
    shrink_plan,
    told,
)
from spillway.testing.builders import cloud_pool
from spillway.testing.elastic import MINUTE, booting_node, busy_node, idle_node, pool_use

ELSEWHERE = Candidate(cluster="onprem", pool="a100", billing=Billing.OWNED)
MOVES = Way(target=ELSEWHERE, why="it has room", lost=timedelta(), paused=timedelta(seconds=40))
PAUSES = Way(target=None, why="nothing else fits", lost=timedelta(seconds=90))


def placed(run: str, *nodes: str, **changes: Any) -> PlacedRun:
    """A run of research with 8 GPUs a node that committed a minute ago."""
    known = {"attempt": 1, "priority": Priority.RESEARCH, "gpus": 8 * len(nodes), "at_risk": MINUTE} | changes
    return PlacedRun(run=run, nodes=frozenset(nodes), **known)


def test_nodes_without_pods_leave_first_those_that_boot_before_those_that_idle() -> None:
    use = pool_use(busy_node("busy"), idle_node("old", 9 * MINUTE), idle_node("new", MINUTE), booting_node("boots"))
    runs = [placed("r", "busy")]
    taken = [choose_leaving(use, left, runs) for left in (4, 3, 2, 1, 0)]
    assert taken == [(), ("boots",), ("boots", "old"), ("boots", "new", "old"), ("boots", "busy", "new", "old")]


def test_of_busy_nodes_those_leave_whose_runs_are_least_and_lose_least() -> None:
    use = pool_use(*(busy_node(name) for name in ("a", "b", "c", "d")))
    runs = [
        placed("core", "a", priority=Priority.PRODUCTION_CORE, at_risk=timedelta()),
        placed("long-ago", "b", at_risk=30 * MINUTE),
        placed("just-now", "c"),
        placed("unknown", "d", at_risk=None),
    ]
    taken = [choose_leaving(use, left, runs) for left in (3, 2, 1)]
    assert taken == [("c",), ("b", "c"), ("b", "c", "d")]


def test_a_gang_that_has_to_leave_one_of_its_nodes_leaves_all_before_another_run_is_touched() -> None:
    use = pool_use(*(busy_node(name) for name in ("a", "b", "c")))
    runs = [placed("gang", "a", "c"), placed("single", "b", at_risk=3 * MINUTE)]
    assert choose_leaving(use, 1, runs) == ("a", "c")


def test_a_node_with_pods_of_others_leaves_last_and_is_told_to_wait_for_them() -> None:
    use = pool_use(busy_node("a", pods=2), busy_node("b"))
    runs = [placed("ours", "a"), placed("dear", "b", priority=Priority.PRODUCTION_CORE)]
    assert choose_leaving(use, 1, runs) == ("b",)
    assert shrink_plan(use, 0, runs, {"ours": PAUSES, "dear": MOVES}).held == ("a",)


def test_what_is_on_order_is_not_ordered_any_more_and_what_leaves_already_does_not_count() -> None:
    use = pool_use(busy_node("a"), idle_node("going", draining=True), wanted=5)
    assert nodes_of(use) == 4
    assert choose_leaving(use, 1, [placed("r", "a")]) == ()


def test_the_plan_says_who_stays_moves_and_pauses_what_is_lost_and_what_an_hour_saves() -> None:
    use = pool_use(*(busy_node(name) for name in ("a", "b", "c")))
    runs = [placed("stays", "a", at_risk=None), placed("moves", "b"), placed("pauses", "c")]
    plan = shrink_plan(use, 1, runs, {"moves": MOVES, "pauses": PAUSES})
    assert plan == ShrinkPlan(
        cluster="cloud",
        pool="h100",
        before=3,
        nodes=1,
        leaving=("b", "c"),
        stays=("stays",),
        departures=(
            Departure(run="moves", attempt=1, gpus=8, fate=Fate.MOVES, way=MOVES, nodes=("b",)),
            Departure(run="pauses", attempt=1, gpus=8, fate=Fate.PAUSES, way=PAUSES, nodes=("c",)),
        ),
        saved_per_hour=Decimal("128.0"),
    )
    assert told(plan).splitlines() == [
        "cloud/h100: 3 -> 1 node; leaving: b, c",
        "stays stays",
        "moves moves to onprem/a100 (owned): lost work 0 s, does not train for 40 s at least; it has room",
        "pauses pauses: lost work 90 s; nothing else fits",
        "lost work: 90 s",
        "saved an hour: 128.00",
    ]


def test_what_nobody_knows_is_told_as_unknown_and_never_as_nothing() -> None:
    use = pool_use(busy_node("a"), pool=cloud_pool(prices_per_gpu_hour={}))
    plan = shrink_plan(use, 0, [placed("r", "a")], {"r": Way(target=None, why="nothing else fits")})
    assert told(plan).splitlines()[1:] == [
        "r pauses: lost work not known; nothing else fits",
        "lost work: 0 s and what is not known of 1 run",
        "saved an hour: not known, for no price is declared",
    ]


def test_a_pool_that_is_small_enough_keeps_all_and_only_may_not_grow() -> None:
    plan = shrink_plan(pool_use(busy_node("a")), 2, [placed("r", "a")], {})
    assert (plan.leaving, plan.stays, plan.departures, plan.saved_per_hour) == ((), ("r",), (), Decimal("0.0"))
    assert told(plan) == "cloud/h100 has 1 node: nothing leaves, and it gets no more than 2 for now"


NODE = st.sampled_from(["busy", "idle", "booting"])


@given(st.lists(NODE, max_size=8), st.integers(0, 9))
def test_no_more_leave_than_have_to_and_no_busy_node_before_an_empty_one(kinds: list[str], left: int) -> None:
    made = {"busy": busy_node, "idle": idle_node, "booting": booting_node}
    nodes = [made[kind](f"n{number}") for number, kind in enumerate(kinds)]
    runs = [placed(f"r-{node.name}", node.name) for node in nodes if node.pods]
    leaving = choose_leaving(pool_use(*nodes), left, runs)
    assert len(leaving) == max(0, len(nodes) - left)
    empty = {node.name for node in nodes if not node.pods}
    assert empty <= set(leaving) or set(leaving) <= empty
