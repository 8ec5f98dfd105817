from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError, StatementError

from spillway.errors import Missing
from spillway.ledger import CostCorrection, Ledger
from spillway.ledger.bookings import Change
from spillway.model import CostEntry
from spillway.pricing import prolonged, repriced
from spillway.testing.builders import job_spec
from spillway.testing.ledger_values import NOW, a_cost

HOUR = timedelta(hours=1)


def at_half_price(entry: CostEntry) -> CostEntry:
    return repriced(entry, Decimal("1.25"))


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """A ledger in which the runs that cost something are open."""
    for run in ("r", "other"):
        ledger.open_run(run, job_spec(), {}, NOW)
    return ledger


def test_a_pod_that_is_booked_three_times_is_one_row(ledger: Ledger) -> None:
    entry = a_cost()
    repeated = dataclasses.replace(entry, amount=Decimal(99), ended_at=NOW + 9 * HOUR)
    assert [ledger.book(entry), ledger.book(entry), ledger.book(repeated)] == [entry, entry, entry]
    assert ledger.costs() == (entry,)


def test_parts_of_gpus_are_booked_to_the_thousandth_and_add_up(ledger: Ledger) -> None:
    for number in range(7):
        ledger.book(a_cost(f"r-{number + 1}", gpus=Decimal("0.142"), gpu_hours=Decimal("0.284")))
    assert sum(entry.gpus for entry in ledger.costs()) == Decimal("0.994")


@pytest.mark.parametrize(
    "changes",
    [{"attempt": "r-2"}, {"pod_uid": "another"}, {"cluster": "cloud"}],
    ids=["the next attempt", "a new pod of the attempt", "a pod at another cluster"],
)
def test_another_pod_is_another_row(ledger: Ledger, changes: dict[str, str]) -> None:
    first, second = a_cost(), a_cost(**changes)
    ledger.book(first)
    ledger.book(second)
    assert sorted(ledger.costs("r"), key=str) == sorted((first, second), key=str)
    assert sum(entry.amount for entry in ledger.costs()) == Decimal("10.00")


def test_a_correction_changes_the_row_and_leaves_a_trace_that_a_replay_does_not_undo(ledger: Ledger) -> None:
    booked = ledger.book(a_cost())
    corrected = repriced(booked, Decimal("1.25"))
    assert corrected.amount == Decimal("2.50")
    for _ in range(2):
        assert ledger.correct(booked, at_half_price, reason="rebate of March", now=NOW + HOUR) == corrected
    assert ledger.book(booked) == corrected
    assert ledger.costs() == (corrected,)
    assert ledger.corrections("r") == (
        CostCorrection(before=booked, after=corrected, reason="rebate of March", corrected_at=NOW + HOUR),
    )
    assert ledger.corrections("other") == ()


def test_what_was_never_booked_is_not_corrected(ledger: Ledger) -> None:
    with pytest.raises(Missing, match=r"booking 'r-1 \(uid-of-r-1\)' is not in ledger .*; book it first"):
        ledger.correct(a_cost(), at_half_price, reason="rebate", now=NOW)


@pytest.mark.parametrize("order", [1, -1], ids=["first the price", "first the end"])
def test_of_a_booking_that_two_correct_at_once_each_keeps_what_the_other_has_changed(
    ledger: Ledger, order: int
) -> None:
    booked = ledger.book(a_cost())
    changes: list[Change] = [at_half_price, lambda entry: prolonged(entry, NOW + 4 * HOUR)]
    for change in changes[::order]:  # both have seen the same booking before
        last = ledger.correct(booked, change, reason="late", now=NOW + 5 * HOUR)
    assert (last.ended_at, last.price_per_gpu_hour) == (NOW + 4 * HOUR, Decimal("1.25"))
    assert (last.gpu_hours, last.amount) == (Decimal(4), Decimal(5))
    assert ledger.costs() == (last,)


def test_a_cost_of_an_unknown_run_is_refused(ledger: Ledger) -> None:
    with pytest.raises(Missing, match="run 'stranger' is not in ledger"):
        ledger.book(a_cost("stranger-1"))


def test_a_pod_never_ends_before_it_starts(ledger: Ledger) -> None:
    with pytest.raises(IntegrityError):
        ledger.book(a_cost(ended_at=NOW - timedelta(microseconds=1)))
    assert ledger.costs() == ()


amounts = st.decimals(min_value=0, max_value=10**12, places=9)


@settings(max_examples=10)
@given(values=st.lists(amounts, min_size=1, max_size=4))
def test_money_is_exact_to_the_last_digit(ledger: Ledger, values: list[Decimal]) -> None:
    before = ledger.costs("r")
    for number, value in enumerate(values, start=len(before)):
        ledger.book(a_cost(pod_uid=f"pod-{number}", amount=value))
    assert sum(entry.amount for entry in ledger.costs("r")) == sum(entry.amount for entry in before) + sum(values)


@pytest.mark.parametrize("amount", [Decimal("NaN"), Decimal("Infinity"), 5.0], ids=str)
def test_what_is_not_exact_money_is_refused(ledger: Ledger, amount: object) -> None:
    with pytest.raises(StatementError, match="expected a finite Decimal"):
        ledger.book(a_cost(amount=amount))


def test_moments_of_any_zone_come_back_as_the_same_moments_in_utc(ledger: Ledger) -> None:
    tokyo = timezone(timedelta(hours=9))
    start = datetime(2026, 3, 31, 22, 0, tzinfo=tokyo)
    ledger.book(a_cost(started_at=start, ended_at=start + HOUR))
    (entry,) = ledger.costs()
    assert (entry.started_at, entry.started_at.tzinfo) == (datetime(2026, 3, 31, 13, 0, tzinfo=UTC), UTC)


def test_a_moment_without_a_zone_is_refused(ledger: Ledger) -> None:
    naive = NOW.replace(tzinfo=None)
    with pytest.raises(StatementError, match="expected an aware moment"):
        ledger.book(a_cost(started_at=naive, ended_at=naive))


def test_costs_come_oldest_start_first_and_of_one_run_where_asked(ledger: Ledger) -> None:
    ledger.book(a_cost("other-1", started_at=NOW + 4 * HOUR, ended_at=NOW + 4 * HOUR))
    ledger.book(a_cost("r-2", started_at=NOW + 2 * HOUR, ended_at=NOW + 4 * HOUR))
    ledger.book(a_cost("r-1"))
    assert [entry.attempt for entry in ledger.costs()] == ["r-1", "r-2", "other-1"]
    assert [entry.attempt for entry in ledger.costs("r")] == ["r-1", "r-2"]
