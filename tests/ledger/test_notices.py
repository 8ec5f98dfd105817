"""Each crossing is told once a month and limit, whoever looks and however often; what failed is tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from spillway.ledger import Ledger, open_ledger
from spillway.model import Billing, Budget, Crossing, LateRun, Outcome, PlacementPolicy
from spillway.testing.builders import job_spec, placement_policy
from spillway.testing.ledger_values import a_cost, reserve
from spillway.testing.racing import in_processes

NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
LEASE = timedelta(minutes=15)
Spend = Callable[[str], None]


def limited(limit: str = "100") -> PlacementPolicy:
    return replace(placement_policy(), budgets=(Budget(department="research", limit=Decimal(limit)),))


def to_both(department: str) -> list[str]:
    return ["chat", "mail"]


@pytest.fixture
def spend(ledger: Ledger) -> Spend:
    """Let the department have spent so much in all."""
    ledger.open_run("r", job_spec(), {}, NOW)
    entry = a_cost("r-1", department="research", billing=Billing.SPOT, started_at=NOW, ended_at=NOW)
    ledger.book(replace(entry, amount=Decimal(0)))

    def spend(amount: str) -> None:
        ledger.correct(entry, lambda booked: replace(booked, amount=Decimal(amount)), reason="more", now=NOW)

    return spend


def told(ledger: Ledger, policy: PlacementPolicy, now: datetime = NOW) -> list[int]:
    return [crossing.percent for crossing in ledger.note_crossings(policy, now, to_both)]


def test_a_crossing_is_told_when_it_is_crossed_and_not_at_every_look(
    ledger: Ledger, ledger_url: str, spend: Spend
) -> None:
    seen = []
    for amount in ("70", "85", "86", "130", "131"):
        spend(amount)
        seen.append(told(open_ledger(ledger_url), limited()))
    assert seen == [[], [80], [], [100], []]
    assert [(n.about.percent, n.target) for n in ledger.undelivered() if isinstance(n.about, Crossing)] == [
        (80, "chat"), (80, "mail"), (100, "chat"), (100, "mail"),
    ]  # fmt: skip


def test_of_a_jump_over_both_the_higher_one_is_told_and_the_lower_one_counts_as_passed(
    ledger: Ledger, spend: Spend
) -> None:
    spend("130")
    assert told(ledger, limited()) == [100]
    spend("85")
    assert told(ledger, limited()) == []


def test_exactly_the_percent_is_reached_and_a_cent_less_is_not(ledger: Ledger, spend: Spend) -> None:
    spend("79.99")
    assert told(ledger, limited()) == []
    spend("80.00")
    assert told(ledger, limited()) == [80]


def test_spending_that_falls_and_rises_again_is_not_told_twice_in_a_month(ledger: Ledger, spend: Spend) -> None:
    for amount, expected in (("85", [80]), ("75", []), ("85", [])):
        spend(amount)
        assert told(ledger, limited()) == expected


def test_another_limit_and_another_month_are_told_anew(ledger: Ledger, spend: Spend) -> None:
    spend("85")
    assert told(ledger, limited()) == [80]
    assert told(ledger, limited("100.00")) == [], "the same limit in other words"
    assert told(ledger, limited("90")) == [80]
    april = NOW + timedelta(days=31)
    ledger.book(
        a_cost("r-2", department="research", billing=Billing.SPOT, amount=Decimal(90), started_at=april, ended_at=april)
    )
    assert told(ledger, limited(), april) == [80]


def test_what_is_spent_in_the_last_minutes_of_a_month_is_told_on_the_next_day_and_not_later(
    ledger: Ledger, spend: Spend
) -> None:
    spend("85")
    april = datetime(2026, 4, 1, tzinfo=UTC)
    assert told(ledger, limited(), april + timedelta(days=2)) == []
    (crossing,) = ledger.note_crossings(limited(), april + timedelta(hours=1), to_both)
    assert (crossing.month, crossing.percent, crossing.projected) == ("2026-03", 80, Decimal(85))
    assert told(ledger, limited(), april + timedelta(hours=2)) == []


def test_nothing_spent_crosses_nothing_not_even_a_limit_of_zero(ledger: Ledger, spend: Spend) -> None:
    assert told(ledger, limited("0")) == []
    spend("0.01")
    assert told(ledger, limited("0")) == [100]


def test_processes_that_look_at_once_put_one_notice_on_record_and_send_it_once(
    ledger: Ledger, ledger_url: str, spend: Spend
) -> None:
    spend("85")

    def look_and_send(ledger: Ledger, process: int) -> None:
        ledger.note_crossings(limited(), NOW, lambda department: ["mail"])
        if (notice := ledger.claim_notice(NOW, LEASE)) is not None:
            assert notice.tries == 1
            ledger.open_run(f"sent-{process}", job_spec(), {}, NOW)
            ledger.close_notice(notice, NOW)

    in_processes(4, ledger_url, look_and_send)
    assert len([run for run in ledger.runs() if run.run.startswith("sent-")]) == 1
    assert ledger.undelivered() == ()


def test_what_was_not_delivered_is_tried_again_and_what_was_is_not(ledger: Ledger, spend: Spend) -> None:
    spend("85")
    told(ledger, limited())
    chat, mail = ledger.claim_notice(NOW, LEASE), ledger.claim_notice(NOW, LEASE)
    assert chat is not None
    assert mail is not None
    assert ledger.claim_notice(NOW, LEASE) is None, "both are being sent"
    ledger.close_notice(chat, NOW)
    ledger.not_delivered(mail, "451 later")
    assert ledger.claim_notice(NOW, LEASE, but=[mail]) is None
    again = ledger.claim_notice(NOW, LEASE)
    assert again is not None
    assert (again.target, again.tries, again.problem) == ("mail", 2, "451 later")


def test_what_a_dead_process_was_sending_is_free_when_its_claim_is_over(ledger: Ledger, spend: Spend) -> None:
    spend("85")
    told(ledger, limited())
    first = ledger.claim_notice(NOW, LEASE)
    assert first is not None
    later = ledger.claim_notice(NOW + LEASE, LEASE)
    assert later is not None
    assert (later.target, later.tries) == (first.target, 2)


def test_a_look_without_writing_leaves_the_crossing_to_be_told(ledger: Ledger, spend: Spend) -> None:
    spend("85")
    assert [crossing.percent for crossing in ledger.new_crossings(limited(), NOW)] == [80]
    assert told(ledger, limited()) == [80]


DUE = job_spec(expected_duration=timedelta(hours=1), finish_within=timedelta(hours=2))


def late(run: str = "late") -> LateRun:
    return LateRun(
        run=run,
        job=DUE.name,
        department=DUE.department,
        deadline=NOW + timedelta(hours=2),
        expected_at=NOW + timedelta(hours=3),
        seen_at=NOW + timedelta(hours=1),
    )


def test_a_late_run_is_told_once_and_its_notice_waits_among_those_of_budgets(ledger: Ledger, spend: Spend) -> None:
    ledger.open_run("late", DUE, {}, NOW)
    spend("85")
    told(ledger, limited())
    assert [ledger.note_late(late(), to_both) for _ in range(2)] == [True, False]
    budgets, runs = ledger.undelivered()[:2], ledger.undelivered()[2:]
    assert [(type(notice.about), notice.target) for notice in budgets] == [(Crossing, "chat"), (Crossing, "mail")]
    assert [(notice.about, notice.target) for notice in runs] == [(late(), "chat"), (late(), "mail")]
    claimed = []
    while (notice := ledger.claim_notice(NOW, LEASE, but=claimed)) is not None:
        claimed.append(notice)
    assert [replace(notice, tries=0) for notice in claimed] == [*budgets, *runs]
    for notice in claimed:
        ledger.close_notice(notice, NOW)
    assert ledger.undelivered() == ()


def test_a_run_with_a_deadline_is_watched_until_it_is_over_cancelled_or_known_to_be_late(ledger: Ledger) -> None:
    ledger.open_run("without", job_spec(), {}, NOW)
    ledger.open_run("waits", DUE, {}, NOW)
    attempts = {run: reserve(ledger, run, DUE, now=NOW)[0] for run in ("done", "runs", "lost")}
    for run, outcome in (("done", Outcome.SUCCEEDED), ("lost", Outcome.PREEMPTED)):
        attempt = attempts[run]
        assert attempt is not None
        ledger.settle(attempt, outcome, str(outcome), NOW)
    for run in ("late", "cancelled"):
        ledger.open_run(run, DUE, {}, NOW)
    ledger.note_late(late(), to_both)
    ledger.cancel_run("cancelled", "nobody needs it", NOW)
    assert ledger.unfinished() == (("lost", DUE), ("runs", DUE), ("waits", DUE))
    reserve(ledger, "lost", DUE, now=NOW)
    assert [run for run, _ in ledger.unfinished()] == ["lost", "runs", "waits"]
