"""What of an approved shrink is still done once the pool has gone on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.model import Billing, Candidate, PoolUse, Priority
from spillway.scaling.approving import still_approved
from spillway.scaling.shrinking import PlacedRun, ShrinkPlan, Way, shrink_plan
from spillway.testing.elastic import busy_node, idle_node, pool_use

PAUSES = Way(target=None, why="nothing else fits")
MOVES = Way(target=Candidate(cluster="onprem", pool="a100", billing=Billing.OWNED), why="it has room")


def placed(run: str, *nodes: str) -> PlacedRun:
    gpus, known = 8 * len(nodes), frozenset(nodes)
    return PlacedRun(run=run, attempt=1, priority=Priority.RESEARCH, gpus=gpus, nodes=known, at_risk=timedelta())


def plan(use: PoolUse, nodes: int, *runs: PlacedRun, ways: dict[str, Way] | None = None) -> ShrinkPlan:
    return shrink_plan(use, nodes, runs, {run.run: PAUSES for run in runs} | (ways or {}))


THREE = pool_use(*(busy_node(name) for name in ("a", "b", "c")))
ALL = plan(THREE, 0, placed("r-a", "a"), placed("r-b", "b"), placed("r-c", "c"))


def test_a_plan_that_is_the_same_is_carried_out_whole() -> None:
    assert still_approved(ALL, ALL) == (ALL, ())


def test_a_run_that_has_come_since_is_left_alone_with_its_node() -> None:
    fresh = plan(THREE, 0, placed("r-a", "a"), placed("new", "b"), placed("r-c", "c"))
    kept, differences = still_approved(ALL, fresh)
    assert (kept.leaving, [one.run for one in kept.departures], kept.stays) == (("a", "c"), ["r-a", "r-c"], ("new",))
    assert differences == (
        "new is on b and pauses by now, which was not approved: it is left alone",
        "r-b was to leave and does not have to any more",
    )


def test_a_run_that_was_to_move_and_could_only_pause_by_now_is_left_alone_with_its_node() -> None:
    runs = placed("r-a", "a"), placed("r-b", "b")
    use = pool_use(busy_node("a"), busy_node("b"))
    kept, differences = still_approved(plan(use, 0, *runs, ways={"r-b": MOVES}), plan(use, 0, *runs))
    assert (kept.leaving, [one.run for one in kept.departures], kept.stays) == (("a",), ["r-a"], ("r-b",))
    assert differences == ("r-b is on b and pauses by now, which was not approved: it is left alone",)


def test_a_run_that_would_move_to_another_place_than_approved_is_left_alone_with_its_node() -> None:
    elsewhere = replace(MOVES, target=Candidate(cluster="cloud", pool="spot", billing=Billing.SPOT))
    use, run = pool_use(busy_node("a")), placed("r-a", "a")
    kept, differences = still_approved(
        plan(use, 0, run, ways={"r-a": MOVES}), plan(use, 0, run, ways={"r-a": elsewhere})
    )
    assert (kept.leaving, kept.departures, kept.stays) == ((), (), ("r-a",))
    assert differences == ("r-a is on a and moves by now, which was not approved: it is left alone",)


def test_a_node_with_pods_of_others_is_waited_for_only_where_it_was_approved_to_leave() -> None:
    use = pool_use(busy_node("a"), busy_node("b"))
    approved, fresh = plan(use, 0, placed("r-a", "a")), plan(use, 0)
    assert (approved.held, fresh.held) == (("b",), ("a", "b"))
    assert still_approved(approved, fresh)[0].held == ("a", "b")
    assert still_approved(replace(approved, leaving=("b",)), fresh)[0].held == ("b",)


def test_where_less_has_to_leave_by_now_less_does() -> None:
    ended = pool_use(busy_node("a"), busy_node("b"), idle_node("c"))
    kept, differences = still_approved(ALL, plan(ended, 0, placed("r-a", "a"), placed("r-b", "b")))
    assert (kept.leaving, [one.run for one in kept.departures]) == (("a", "b", "c"), ["r-a", "r-b"])
    assert differences == ("r-c was to leave and does not have to any more",)


def test_another_node_than_approved_stays_even_where_nothing_runs_on_it() -> None:
    approved = plan(pool_use(busy_node("a"), busy_node("b")), 1, placed("r-a", "a"), placed("r-b", "b"))
    (departure,) = approved.departures
    idle = pool_use(busy_node("a"), idle_node("b"))
    assert approved.leaving == ("a",)
    kept, differences = still_approved(approved, plan(idle, 1, placed("r-a", "a")))
    assert (kept.leaving, kept.departures, kept.stays) == ((), (), ("r-a",))
    assert differences == (
        "a was to leave and does not have to any more",
        "b would leave by now, which was not approved: it stays",
        f"{departure.run} was to leave and does not have to any more",
    )


def test_a_gang_leaves_with_those_of_its_nodes_that_may() -> None:
    use = pool_use(busy_node("a"), busy_node("b", pods=2))
    approved = plan(use, 0, placed("gang", "a", "b"))
    kept, _ = still_approved(approved, plan(use, 0, placed("gang", "a", "b"), placed("new", "b")))
    assert (kept.leaving, [one.run for one in kept.departures], kept.stays) == (("a",), ["gang"], ("new",))


@pytest.mark.parametrize("more", [(), ("d",)])
def test_nothing_that_was_not_approved_leaves(more: tuple[str, ...]) -> None:
    grown = pool_use(*(busy_node(name) for name in ("a", "b", "c", *more)))
    kept, _ = still_approved(ALL, plan(grown, 0, *(placed(f"x-{name}", name) for name in ("a", "b", "c", *more))))
    assert (kept.leaving, kept.departures) == ((), ())
