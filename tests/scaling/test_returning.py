"""Which runs go back to on-premises when it has room again."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from spillway.migration import MoveFacts
from spillway.scaling.packing import FreeNodes
from spillway.scaling.returning import BoughtRun, ReturnRules, plan_returns, time_ahead
from spillway.testing.builders import NOW

HOUR = timedelta(hours=1)
FACTS = MoveFacts(
    image_bytes=0,
    dataset_bytes=0,
    missing_checkpoint_bytes=0,
    checkpoint_bytes=0,
    flush=timedelta(minutes=4),
    grace=timedelta(minutes=5),
    restart=timedelta(minutes=6),
    steps_at_risk=0,
    egress_price_per_gib=Decimal(0),
    brought_egress=Decimal(0),
    price_here=Decimal(8),
    price_there=Decimal("2.5"),
)


def bought(run: str, **fields: Any) -> BoughtRun:
    """A run of 8 GPUs that has trained for 2 of its 10 hours."""
    usual: dict[str, Any] = {
        "gpus_per_node": 8, "nodes": 1, "since": NOW - 2 * HOUR, "trained": 2 * HOUR, "expected": 10 * HOUR,
        "neighbours": 0, "facts": FACTS,
    }  # fmt: skip
    return BoughtRun(run=run, **usual | fields)


def returning(*runs: BoughtRun, free: tuple[int, ...], rules: ReturnRules | None = None) -> list[str]:
    return [back.run for back in plan_returns(runs, FreeNodes(free), rules or ReturnRules(), NOW)]


def test_a_run_goes_back_where_that_saves_money_and_says_how_much() -> None:
    (back,) = plan_returns([bought("a")], FreeNodes((8,)), ReturnRules(), NOW)
    # 8 GPUs x (5.5 x 8 h - 8 x 4 min - 2.5 x 6 min)
    assert back.saved.quantize(Decimal("0.01")) == Decimal("345.73")
    assert back.reason == "on-premises has room and about 8:00:00 are left of it: 345.73 saved"


def test_a_run_stays_that_began_a_moment_ago_or_is_about_to_end() -> None:
    assert returning(bought("a", since=NOW - HOUR + timedelta(seconds=1)), free=(8,)) == []
    assert returning(bought("a", trained=timedelta(hours=9, minutes=55)), free=(8,)) == []


def test_a_run_of_which_nothing_is_known_is_thought_to_go_on_as_long_as_it_has() -> None:
    assert time_ahead(3 * HOUR, None) == 3 * HOUR
    assert time_ahead(3 * HOUR, 2 * HOUR) == 3 * HOUR
    assert time_ahead(3 * HOUR, 10 * HOUR) == 7 * HOUR


def test_those_that_leave_an_empty_node_behind_go_first_and_none_gets_the_room_of_another() -> None:
    shared = bought("shared", gpus_per_node=4, neighbours=4, expected=100 * HOUR)
    alone = bought("alone", gpus_per_node=4)
    assert returning(shared, alone, free=(4,)) == ["alone"]
    assert returning(shared, alone, free=(4, 4)) == ["alone", "shared"]
    assert returning(bought("wide"), free=(4, 4)) == []


def test_the_room_that_is_looked_at_is_left_as_it_was() -> None:
    free = FreeNodes((8, 3))
    plan_returns([bought("a")], free, ReturnRules(), NOW)
    assert (free.total, free.pods(8), free.pods(1)) == (11, 1, 11)


def test_the_fullest_node_that_takes_a_pod_gets_it() -> None:
    free = FreeNodes((8, 3, 5))
    assert free.take(3, 3) == [(3, 1), (5, 1), (8, 1)]
    assert (free.total, free.fits(5, 1), free.fits(5, 2)) == (7, True, False)
