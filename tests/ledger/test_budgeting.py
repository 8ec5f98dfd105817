"""Budgets hold in one transaction with what is promised: by processes, over months, against clocks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import text

from spillway.attribution import total_of
from spillway.errors import ConfigError, Unreachable
from spillway.ledger import Ledger, open_ledger
from spillway.ledger.connection import Database
from spillway.ledger.schema import REVISION, VERSION_TABLE
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Budget,
    BudgetState,
    Candidate,
    JobSpec,
    OffPeak,
    Outcome,
    PlacementDecision,
    PlacementPolicy,
    Snapshot,
)
from spillway.placement.policy import place
from spillway.testing.builders import (
    cloud_cluster,
    cloud_pool,
    cluster_state,
    cpu_pool,
    job_spec,
    placement_policy,
    snapshot,
)
from spillway.testing.ledger_values import a_cost, reserve
from spillway.testing.racing import in_processes

NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
CLOUD = Candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
JOB = job_spec(expected_duration=HOUR)
"""It costs 8.00."""
SEEN = snapshot(cluster_state(cloud_cluster(pools=(cloud_pool(max_nodes=4, gpus_per_node=64),))), taken_at=NOW)
runs = (f"r{number}" for number in itertools.count(1))


def limited(limit: Any, *, zone: str = "UTC", **budget: Any) -> PlacementPolicy:
    """A policy in which research may spend so much."""
    budgets = (Budget(department="research", limit=Decimal(limit), **budget),)
    return replace(placement_policy(), budgets=budgets, time_zone=zone)


def admit(
    ledger: Ledger,
    policy: PlacementPolicy,
    *,
    job: JobSpec = JOB,
    now: datetime = NOW,
    run: str | None = None,
    seen: Snapshot = SEEN,
) -> Attempt | None:
    """Ask for a place in the cloud for a new run."""

    def decide(whole: Snapshot) -> PlacementDecision:
        return place(job, whole, policy)

    seen = replace(seen, taken_at=now)
    attempt, _ = reserve(ledger, run or next(runs), job, now=now, decide=decide, seen=seen, policy=policy)
    return attempt


def this_month(ledger: Ledger, policy: PlacementPolicy, now: datetime = NOW) -> BudgetState:
    (state,) = ledger.budgets(policy, now)
    return state


def end(ledger: Ledger, attempt: Attempt, *, after: timedelta) -> None:
    """Book the attempt, whose pod began at once, and settle it."""
    book(ledger, attempt, after=after)
    ledger.settle(attempt, Outcome.SUCCEEDED, "done", attempt.reserved_at + after)


def book(ledger: Ledger, attempt: Attempt, *, after: timedelta) -> None:
    """Book the attempt, whose pod began at once and ended after so long."""
    started, at = attempt.reserved_at, attempt.reserved_at + after
    price = attempt.price_per_gpu_hour
    assert price is not None
    booked = a_cost(
        attempt.label,
        cluster="cloud",
        department=attempt.job.department,
        billing=attempt.candidate.billing,
        price_per_gpu_hour=price,
        amount=price * Decimal(after / HOUR),
        started_at=started,
        ended_at=at,
    )
    ledger.book(booked)


def test_two_hundred_admissions_by_sixteen_processes_spend_the_budget_to_the_last_one_that_fits(
    ledger_url: str,
) -> None:
    policy = limited(8 * 37 + 7)

    def admit_many(ledger: Ledger, process: int) -> None:
        for number in range(13 if process < 8 else 12):
            admit(ledger, policy, run=f"p{process}-{number}")

    in_processes(16, ledger_url, admit_many)
    ledger = open_ledger(ledger_url)
    assert len(ledger.runs()) == 200
    assert len(ledger.reservations()) == 37
    state = this_month(ledger, policy)
    assert (state.reserved, state.left) == (Decimal(8 * 37), Decimal(7))


def test_a_reservation_ends_with_what_it_really_cost_and_the_next_waiting_run_is_admitted(ledger: Ledger) -> None:
    policy = limited(12)
    first = admit(ledger, policy)
    assert first is not None
    assert admit(ledger, policy, run="waiting") is None
    end(ledger, first, after=HOUR / 2)
    assert this_month(ledger, policy).booked == Decimal(4)
    assert admit(ledger, policy, run="waiting") is not None
    assert this_month(ledger, policy).left == 0


def test_a_reservation_whose_owner_is_gone_gives_its_budget_back_with_its_lease(ledger: Ledger) -> None:
    policy = limited(8)
    first = admit(ledger, policy)
    assert first is not None
    assert admit(ledger, policy, run="waiting") is None
    ledger.expire(first, first.lease_expires_at)
    assert admit(ledger, policy, run="waiting") is not None


def test_what_runs_longer_than_it_said_is_promised_what_it_has_cost_and_may_finish(ledger: Ledger) -> None:
    policy = limited(20)
    running = admit(ledger, policy)
    assert running is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        running = ledger.advance(running, state)
    running = ledger.advance(running, AttemptState.RUNNING, pod_uid="u", started_at=NOW)
    late = NOW + 3 * HOUR
    spent = this_month(ledger, policy, late)
    assert (spent.accrued, spent.reserved, spent.left) == (Decimal(24), Decimal(24), Decimal(-4))
    assert admit(ledger, policy, now=late) is None
    assert ledger.open_attempt(running.run) == running


def test_a_pod_that_is_booked_and_whose_attempt_nobody_could_settle_counts_once(ledger: Ledger) -> None:
    policy = limited(100)
    attempt = admit(ledger, policy)
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    attempt = ledger.advance(attempt, AttemptState.RUNNING, pod_uid=f"uid-of-{attempt.label}", started_at=NOW)
    book(ledger, attempt, after=HOUR)
    spent = this_month(ledger, policy, NOW + 2 * HOUR)
    assert (spent.booked, spent.accrued, spent.reserved) == (Decimal(8), 0, 0)


def test_an_attempt_over_the_end_of_the_month_is_paid_by_both(ledger: Ledger) -> None:
    policy = limited(30, zone="Asia/Tokyo")
    before = datetime(2026, 3, 31, 14, tzinfo=UTC)  # an hour before midnight in Tokyo
    long = replace(JOB, expected_duration=4 * HOUR)
    assert admit(ledger, policy, job=long, now=before) is not None
    (march,) = ledger.budgets(policy, before)
    assert (march.month, march.reserved) == ("2026-03", Decimal(8))
    (april,) = ledger.budgets(policy, before + HOUR)
    # It has not begun yet: what is left of its four hours is thought to come still.
    assert (april.month, april.reserved) == ("2026-04", Decimal(32))
    attempt = ledger.open_attempt(ledger.runs()[0].run)
    assert attempt is not None
    end(ledger, attempt, after=4 * HOUR)
    assert [this_month(ledger, policy, at).booked for at in (before, before + HOUR)] == [Decimal(8), Decimal(24)]


def test_in_the_last_minute_of_a_month_jobs_that_say_no_duration_are_paid_by_the_next_one(ledger: Ledger) -> None:
    last_minute = datetime(2026, 3, 31, 23, 59, tzinfo=UTC)
    unsaid, all_april = job_spec(), 30 * 24 * 8
    assert admit(ledger, limited(0, month="2026-04"), job=unsaid, now=last_minute) is None
    policy = limited(2 * all_april - 1)
    assert admit(ledger, policy, job=unsaid, now=last_minute) is not None
    assert admit(ledger, policy, job=unsaid, now=last_minute) is None


def test_only_bought_gpus_of_the_department_count(ledger: Ledger) -> None:
    policy = limited(10)
    ledger.open_run("r", JOB, {}, NOW)
    ledger.book(a_cost("r-1", department="research", billing=Billing.OWNED, started_at=NOW, ended_at=NOW + HOUR))
    ledger.book(a_cost("r-2", department="other", billing=Billing.SPOT, started_at=NOW, ended_at=NOW + HOUR))
    assert this_month(ledger, policy).booked == 0
    assert ledger.budgets(placement_policy(), NOW) == ()


def test_work_without_gpus_pays_for_its_cores(ledger: Ledger) -> None:
    """Sixteen cores for an hour cost 0.80; half of it lies in the next month."""
    cores = cpu_pool(prices_per_core_hour={Billing.ON_DEMAND: Decimal("0.05")})
    seen, policy = snapshot(cluster_state(cloud_cluster(pools=(cores,)))), limited("0.50")
    job, late = replace(JOB, gpus_per_node=0, cpu_cores=16.0), datetime(2026, 3, 31, 23, 30, tzinfo=UTC)
    attempt = admit(ledger, policy, job=job, now=late, seen=seen)
    assert attempt is not None
    assert this_month(ledger, policy, late).reserved == Decimal("0.40")
    assert admit(ledger, policy, job=job, now=late, seen=seen) is None
    paid = {"cores": Decimal(16), "price_per_gpu_hour": Decimal("0.05"), "amount": Decimal("0.80")}
    whose: dict[str, Any] = {"department": "research", "billing": Billing.ON_DEMAND, "gpus": Decimal(0)}
    booked = a_cost(attempt.label, **whose, **paid, started_at=late, ended_at=late + HOUR)
    ledger.book(booked)
    ledger.settle(attempt, Outcome.SUCCEEDED, "done", late + HOUR)
    assert [this_month(ledger, policy, at).booked for at in (late, late + HOUR)] == [Decimal("0.40")] * 2
    assert booked in ledger.costs()


def test_an_attempt_that_begins_off_peak_keeps_that_price_and_the_budget_bears_no_more(ledger: Ledger) -> None:
    night = OffPeak(begins=22 * HOUR, ends=6 * HOUR, time_zone="UTC", prices_per_hour={Billing.ON_DEMAND: Decimal(5)})
    pool = cloud_pool(off_peak=night, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)})
    seen, policy = snapshot(cluster_state(cloud_cluster(pools=(pool,)))), limited(5)
    at_night = datetime(2026, 3, 2, 23, tzinfo=UTC)
    assert admit(ledger, policy, seen=seen) is None
    attempt = admit(ledger, policy, now=at_night, seen=seen)
    assert attempt is not None
    promised = [this_month(ledger, policy, at_night).reserved]
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    ledger.advance(attempt, AttemptState.RUNNING, started_at=at_night, price_per_gpu_hour=Decimal(5))
    promised.append(this_month(ledger, policy, at_night).reserved)
    assert promised == [8, 5], "until it starts it may be too late for those hours"


def test_a_month_without_a_limit_limits_nothing(ledger: Ledger) -> None:
    policy = limited(0, month="2026-04")
    assert ledger.budgets(policy, NOW) == ()
    assert admit(ledger, policy) is not None
    assert admit(ledger, policy, now=NOW + timedelta(days=30)) is None


def test_a_clock_that_went_back_over_the_end_of_a_month_promises_nothing_from_a_budget(ledger: Ledger) -> None:
    policy = limited(100)
    ahead = admit(ledger, policy, now=datetime(2026, 4, 1, tzinfo=UTC), run="ahead")
    assert ahead is not None
    _, decision = reserve(
        ledger, "late", JOB, now=NOW, decide=lambda whole: place(JOB, whole, policy), seen=SEEN, policy=policy
    )
    assert decision.chosen is None
    assert decision.verdicts[0].rejections[0].reason == (
        "the month is not known: the clock here says 2026-03-02T09:30:00+00:00, and attempt 'ahead-1', which is open, "
        "was reserved at 2026-04-01T00:00:00+00:00: set the clocks of the hosts right; if that moment is the wrong "
        "one, nothing is bought until the attempt has ended"
    )
    ledger.settle(ahead, Outcome.CANCELLED, "its host's clock was wrong", NOW)
    assert admit(ledger, policy, run="late") is not None


def test_a_decision_by_budget_follows_from_what_is_stored(ledger: Ledger) -> None:
    policy = limited(12)
    for run in ("first", "second"):
        admit(ledger, policy, run=run)
        (record,) = ledger.decisions(run)
        assert place(record.job, record.snapshot, record.policy) == record.decision


def test_nothing_is_reserved_where_another_release_has_upgraded_the_ledger_meanwhile(ledger: Ledger) -> None:
    newer = f"{int(REVISION) + 1:04}"
    with ledger.engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{newer}'"))
    try:
        with pytest.raises(ConfigError, match=f"has schema {newer}, newer than {REVISION} of this release"):
            admit(ledger, limited(100))
    finally:
        with ledger.engine.begin() as connection:
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{REVISION}'"))


def test_nothing_is_placed_while_the_ledger_does_not_answer() -> None:
    gone = Ledger(Database("postgresql://user:pw@127.0.0.1:9/ledger"))
    with pytest.raises(Unreachable, match="ledger postgresql://127"):
        admit(gone, limited(100))


def test_sums_are_those_of_the_bookings_to_the_last_digit(ledger: Ledger) -> None:
    policy = limited(1000)
    ledger.open_run("r", JOB, {}, NOW)
    third = Decimal(1) / 3
    spot = a_cost(department="research", billing=Billing.SPOT, amount=third, started_at=NOW, ended_at=NOW)
    for number in range(1, 8):
        ledger.book(replace(spot, attempt=f"r-{number}"))
    assert this_month(ledger, policy).booked == total_of([third] * 7)


def test_a_budget_that_is_looked_at_knows_the_pace_of_the_month_before_and_none_where_there_was_none(
    ledger: Ledger,
) -> None:
    february = datetime(2026, 2, 10, tzinfo=UTC)
    for number, (start, department) in enumerate([(NOW, "research"), (february, "production")], start=1):
        ledger.open_run(f"r{number}", job_spec(), {}, NOW)
        spent = {"department": department, "billing": Billing.SPOT, "amount": Decimal(6720)}
        ledger.book(a_cost(f"r{number}-1", started_at=start, ended_at=start + HOUR, **spent))
    policy = limited(100)
    policy = replace(policy, budgets=(*policy.budgets, Budget(department="production", limit=Decimal(100))))
    found = {state.department: state.hourly_before for state in ledger.budgets(policy, NOW + 2 * HOUR)}
    assert found == {"research": None, "production": Decimal(10)}
    (later,) = ledger.budgets(limited(100), datetime(2026, 5, 1, tzinfo=UTC))
    assert later.hourly_before == 0, "it spent before, and nothing in April"


def test_the_pace_of_the_month_before_counts_the_pods_that_began_in_it_and_run_on(ledger: Ledger) -> None:
    april = datetime(2026, 4, 1, tzinfo=UTC)
    began, policy = april - 93 * HOUR, limited(100_000)
    attempt = admit(ledger, policy, job=replace(JOB, expected_duration=200 * HOUR), now=began)
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    ledger.advance(attempt, AttemptState.RUNNING, pod_uid="u", started_at=began)
    assert this_month(ledger, policy, april + HOUR).hourly_before == 1, "8 an hour in 93 of the 744 hours of March"
    assert this_month(ledger, policy, began + HOUR).hourly_before is None, "it began in this month"
