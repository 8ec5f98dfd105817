"""What budgets limit, and what a job is thought to cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from spillway.budget import expected_end, limit_of, projected
from spillway.model import Billing, Budget, BudgetState, PlacementDecision
from spillway.placement.policy import place
from spillway.testing.builders import cloud_cluster, cluster_state, job_spec, onprem_cluster, placement_policy, snapshot

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
JANUARY = datetime(2026, 1, 1, tzinfo=UTC)
FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)
EVERY = Budget(department="research", limit=Decimal(100))
IN_MARCH = Budget(department="research", limit=Decimal(7), month="2026-03")


def state(**fields: Any) -> BudgetState:
    """100 for January, of which nothing is spent."""
    defaults: dict[str, Any] = {"month": "2026-01", "starts_at": JANUARY, "ends_at": FEBRUARY, "limit": Decimal(100)}
    nothing = dict.fromkeys(("booked", "accrued", "reserved"), Decimal(0))
    return BudgetState(**{"department": "research", **defaults, **nothing, **fields})


def test_the_budget_of_a_month_stands_in_place_of_the_one_of_every_month() -> None:
    budgets = (EVERY, IN_MARCH)
    assert [limit_of(budgets, "research", month) for month in ("2026-02", "2026-03")] == [Decimal(100), Decimal(7)]
    assert limit_of([IN_MARCH], "research", "2026-02") is None
    assert limit_of(budgets, "production", "2026-03") is None


def test_gpus_are_promised_for_as_long_as_the_job_says_or_longer_where_it_took_longer() -> None:
    day = job_spec(expected_duration=timedelta(days=1))
    assert expected_end(day, NOW, NOW, "UTC") == NOW + timedelta(days=1)
    assert expected_end(day, NOW - timedelta(days=3), NOW, "UTC") == NOW


def test_a_job_that_does_not_say_how_long_it_takes_is_promised_this_month_and_the_next_one() -> None:
    assert expected_end(job_spec(), NOW, NOW, "UTC") == MARCH
    assert expected_end(job_spec(), NOW, MARCH - timedelta(minutes=1), "UTC") == datetime(2026, 4, 1, tzinfo=UTC)


def placed(*budgets: BudgetState, local: bool = False, **job: Any) -> PlacementDecision:
    """The decision for an hour of a GPU that costs 8 in the cloud."""
    wanted = job_spec(**{"expected_duration": timedelta(hours=1), **job})
    clusters = [cluster_state(cloud_cluster()), *([cluster_state(onprem_cluster())] if local else [])]
    return place(wanted, snapshot(*clusters, taken_at=NOW, budgets=budgets), placement_policy())


def _reason(decision: PlacementDecision) -> str:
    """What the budget says against on-demand GPUs."""
    verdict = next(v for v in decision.verdicts if v.candidate.billing is Billing.ON_DEMAND)
    return next(rejection.reason for rejection in verdict.rejections if rejection.rule == "budget")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"booked": Decimal(92)}, None),
        (
            {"booked": Decimal("92.01")},
            "would cost 8.00 in 2026-01; 'research' has 7.99 left of 100.00 (booked 92.01, reserved 0.00)",
        ),
        (
            {"booked": Decimal(50), "reserved": Decimal(43)},
            "would cost 8.00 in 2026-01; 'research' has 7.00 left of 100.00 (booked 50.00, reserved 43.00)",
        ),
        (
            {"booked": Decimal(130)},
            "would cost 8.00 in 2026-01; 'research' has 0.00 left of 100.00 (booked 130.00, reserved 0.00)",
        ),
        ({"doubt": "set the clocks right"}, "the month is not known: set the clocks right"),
    ],
    ids=["to the cent", "a cent too much", "promised to others", "spent", "which month"],
)  # fmt: skip
def test_a_job_goes_to_the_cloud_only_where_its_budget_bears_it(changes: dict[str, Any], reason: str | None) -> None:
    decision = placed(state(**changes))
    on_demand = next(v for v in decision.verdicts if v.candidate.billing is Billing.ON_DEMAND)
    assert [rejection.reason for rejection in on_demand.rejections] == ([] if reason is None else [reason])
    assert decision.possible


def test_a_spent_budget_keeps_nothing_from_running_at_home() -> None:
    decision = placed(state(booked=Decimal(200)), local=True)
    assert decision.chosen is not None
    assert decision.chosen.cluster == "onprem"


def test_each_month_that_a_job_runs_in_bears_its_part() -> None:
    february = state(month="2026-02", starts_at=FEBRUARY, ends_at=MARCH)
    lasts = FEBRUARY - NOW + timedelta(hours=10)
    rich = {"limit": Decimal(10**6)}
    assert placed(state(**rich), february, expected_duration=lasts).chosen is not None
    longer = placed(state(**rich), february, expected_duration=lasts + timedelta(hours=5))
    assert longer.chosen is None
    assert _reason(longer).startswith("would cost 120.00 in 2026-02; ")


def test_what_costs_more_than_a_whole_month_never_fits_unless_it_only_did_not_say_how_long_it_takes() -> None:
    assert not placed(state(), expected_duration=timedelta(hours=13)).possible
    unsaid = placed(state(), expected_duration=None)
    assert unsaid.possible
    assert "until the month ends, as it says no expected_duration" in _reason(unsaid)
    whole = state(month="2026-02", starts_at=FEBRUARY, ends_at=MARCH, limit=Decimal(28 * 24 * 8))
    this = state(limit=Decimal(10**6))
    assert placed(this, whole, expected_duration=None).chosen is not None
    assert not placed(this, replace(whole, limit=whole.limit - 1), expected_duration=None).possible


def test_the_month_is_projected_at_its_pace_and_never_below_what_is_promised() -> None:
    day_three = JANUARY + timedelta(days=3, hours=2, minutes=24)  # a tenth of it
    spent = state(booked=Decimal(10), accrued=Decimal(2), reserved=Decimal(5))
    assert projected(spent, day_three) == Decimal(120)
    assert projected(state(reserved=Decimal(80)), day_three) == Decimal(80)
    assert projected(state(), JANUARY) == 0


@pytest.mark.parametrize(
    ("elapsed", "spent", "expected"),
    [
        (timedelta(), 0, 744),
        (timedelta(hours=1), 40, 40 + 743 * (40 + 743) / 744),
        (timedelta(days=15, hours=12), 744, 744 + 372 * 1.5),
        (timedelta(days=31), 1488, 1488),
    ],
    ids=["at its first moment", "a dear first hour", "half of it at twice the pace", "over"],
)
def test_the_first_days_of_a_month_say_little_of_its_end_where_the_month_before_is_known(
    elapsed: timedelta, spent: int, expected: float
) -> None:
    """Of a month of 744 hours, after one of 1.00 an hour."""
    seen = state(booked=Decimal(spent), hourly_before=Decimal(1))
    assert float(projected(seen, JANUARY + elapsed)) == pytest.approx(expected)
