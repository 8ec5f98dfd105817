"""A recorded day, decided by the live policy, and the same day by a candidate beside it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from spillway.ledger import DecisionRecord, Ledger, open_ledger
from spillway.model import (
    Billing,
    Budget,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    Priority,
    SecondChoice,
    Snapshot,
    WaitRules,
)
from spillway.placement.context import index
from spillway.placement.policy import choose
from spillway.placement.rules import RULES
from spillway.replay.synthetic import PHILLY_LIKE, made_up
from spillway.runs.explaining import again
from spillway.runs.shadowing import Change, Difference, Shadow, shadow
from spillway.testing.builders import candidate, job_spec, placement_policy, snapshot
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import reserve

DAY = datetime(2026, 3, 2, tzinfo=UTC)
NEXT = DAY + timedelta(days=1)
LIVE = placement_policy()
DEAREST = replace(LIVE, second_choice=dict.fromkeys(Priority, SecondChoice.HIGH_PERFORMANCE))
ONPREM = candidate()
ON_DEMAND, SPOT = (candidate(cluster="cloud", pool="h100", billing=kind) for kind in (Billing.ON_DEMAND, Billing.SPOT))
JOBS = [job for job in made_up(PHILLY_LIKE, starts_at=DAY, days=1, seed=7) if job.gpus in {2, 4, 8}]
"""They ask for more than the 64 GPUs that there are, and none of them ends."""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The day: every second job may be interrupted."""
    made = open_ledger(new_ledger(tmp_path_factory.mktemp("day") / "ledger.db"))
    for at, recorded in enumerate(JOBS):
        job = job_spec(gpus_per_node=recorded.gpus, spot_ok=at % 2 == 0)

        def decide(whole: Snapshot, job: JobSpec = job) -> PlacementDecision:
            return choose(job, index(whole, LIVE))

        moment = recorded.submitted_at
        reserve(made, recorded.job, job, now=moment, seen=snapshot(taken_at=moment), policy=LIVE, decide=decide)
    return made


@pytest.fixture(scope="module")
def day(ledger: Ledger) -> tuple[DecisionRecord, ...]:
    return tuple(ledger.decisions_between(DAY, NEXT))


def beside(day: tuple[DecisionRecord, ...], policy: PlacementPolicy) -> Shadow:
    return shadow(day, policy, since=DAY, until=NEXT)


def test_the_live_decisions_of_the_day_are_rebuilt_from_their_snapshots(day: tuple[DecisionRecord, ...]) -> None:
    assert [record.run for record in day] == [job.job for job in JOBS]
    assert {again(record).rebuilt for record in day} == {True}
    assert set(Counter(record.decision.chosen for record in day)) == {ONPREM, ON_DEMAND, SPOT, None}


def test_the_live_policy_beside_itself_decides_everything_the_same(day: tuple[DecisionRecord, ...]) -> None:
    found = beside(day, LIVE)
    assert found == Shadow(since=DAY, until=NEXT, compared=27, other_rules=0, not_rebuilt=0, differences=())
    assert found.told() == (
        "decisions from 2026-03-02 00:00:00 to 2026-03-03 00:00:00 (UTC): 27, of which the candidate takes 0 otherwise"
    )


def test_a_candidate_shows_the_jobs_that_go_elsewhere_and_what_an_hour_of_them_costs_more(
    day: tuple[DecisionRecord, ...],
) -> None:
    found = beside(day, DEAREST)
    on_spot = [record for record in day if record.decision.chosen == SPOT]
    assert found.differences == tuple(
        Difference(
            run=record.run,
            attempt=1,
            taken_at=record.taken_at,
            job="digits",
            change=Change.ELSEWHERE,
            live="placed on cloud/h100/spot",
            candidate="placed on cloud/h100/on-demand",
            live_per_hour=Decimal("2.8") * record.job.gpus,
            candidate_per_hour=Decimal("8.0") * record.job.gpus,
        )
        for record in on_spot
    )
    assert found.per_hour == Decimal("5.2") * sum(record.job.gpus for record in on_spot) > 0
    assert dict(found.counts) == {Change.ELSEWHERE: len(on_spot), Change.WAITS: 0, Change.RUNS: 0, Change.OTHERWISE: 0}
    assert f"an hour of what runs elsewhere costs +{found.per_hour:.2f} in all" in found.told()


def test_a_candidate_that_keeps_jobs_out_of_the_cloud_lets_exactly_these_wait(day: tuple[DecisionRecord, ...]) -> None:
    found = beside(day, replace(LIVE, waiting=WaitRules(everybody=timedelta(hours=1))))
    bought = [record.run for record in day if record.decision.chosen in {ON_DEMAND, SPOT}]
    assert [(one.run, one.change, one.candidate, one.per_hour) for one in found.differences] == [
        (run, Change.WAITS, "waits, nothing fits now", None) for run in bought
    ]
    assert found.per_hour == 0


def test_a_job_that_waited_by_the_live_policy_runs_by_a_candidate_that_lets_it(day: tuple[DecisionRecord, ...]) -> None:
    patient = replace(LIVE, waiting=WaitRules(everybody=timedelta(hours=1)))
    (bought, *_) = (record for record in day if record.decision.chosen == ON_DEMAND)
    waits = choose(bought.job, index(bought.snapshot, patient))
    (found,) = beside((replace(bought, policy=patient, decision=waits, attempt=None),), LIVE).differences
    assert (found.change, found.live, found.candidate) == (
        Change.RUNS,
        "waits, nothing fits now",
        "placed on cloud/h100/on-demand",
    )
    assert (found.live_per_hour, found.candidate_per_hour) == (None, 8 * bought.job.gpus)


def test_a_person_is_told_the_first_differences_and_how_many_more_there_are(
    day: tuple[DecisionRecord, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway.runs.shadowing.SHOWN", 1)
    found = beside(day, replace(LIVE, waiting=WaitRules(everybody=timedelta(hours=1))))
    *_, header, only, last = found.told().splitlines()
    assert header.split() == ["AT", "(UTC)", "RUN", "JOB", "LIVE", "CANDIDATE", "MORE/HOUR"]
    assert found.differences[0].run in only
    assert last == f"and {len(found.differences) - 1} more, which the JSON has"


def test_budgets_are_those_of_the_moment_whatever_the_candidate_says(day: tuple[DecisionRecord, ...]) -> None:
    assert beside(day, replace(LIVE, budgets=(Budget(department="research", limit=Decimal(0)),))).differences == ()


def test_decisions_that_cannot_be_taken_again_are_left_out_and_counted(day: tuple[DecisionRecord, ...]) -> None:
    first, second, third, *_ = day
    earlier = replace(first, decision=replace(first.decision, rules=RULES - 1))
    changed = replace(second, decision=replace(second.decision, chosen=ON_DEMAND))
    found = beside((earlier, changed, third), DEAREST)
    assert (found.compared, found.other_rules, found.not_rebuilt, found.differences) == (1, 1, 1, ())
    assert found.told().splitlines()[1:] == [
        "left out: 1 that other rules decided, which these cannot take again",
        "left out: 1 that do not follow from what is stored of them",
    ]


def test_only_decisions_of_the_asked_time_are_read_and_all_of_them(
    ledger: Ledger, day: tuple[DecisionRecord, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillway.ledger.connection.READ_AT_ONCE", 7)
    cut = day[20].taken_at
    assert tuple(ledger.decisions_between(DAY, cut)) == day[:20]
    assert tuple(ledger.decisions_between(cut, NEXT)) == day[20:]
    assert tuple(ledger.decisions_between(NEXT, NEXT + timedelta(days=1))) == ()


def test_nothing_is_changed(ledger: Ledger, day: tuple[DecisionRecord, ...]) -> None:
    before = ledger.reservations()
    beside(day, DEAREST)
    assert (ledger.reservations(), tuple(ledger.decisions_between(DAY, NEXT))) == (before, day)
