"""Attempts that ended while nobody watched: why, when, and what is booked for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

import pytest

from spillway.checkpoints.progress import Progress, write_progress
from spillway.clouds.base import ClusterClient, LogLines
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PodPhase, PodState, VerdictKind
from spillway.pricing import prolonged, repriced
from spillway.runs.aftermath import rebook
from spillway.runs.cancelling import cancel
from spillway.runs.services import Services
from spillway.runs.settling import Ended, settle, settle_over
from spillway.runs.stopping import note_ending
from spillway.runs.sweeping import Remedy, sweep
from spillway.runs.watching import Watch
from spillway.testing.carried_run import Carried

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

MINUTE = timedelta(minutes=1)
START = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
FINISHED = START + 7 * MINUTE
LAST_RENEWED = START + 20 * MINUTE
FOUND = START + timedelta(days=2)
NOTED = "nobody needs it"


def at(services: Services, moment: datetime) -> Services:
    return replace(services, clock=lambda: moment)


def abandoned(run: Carried, *, started_at: datetime = START) -> Attempt:
    """A running attempt that was looked after for the last time at ``LAST_RENEWED``."""
    attempt = at_the_start(run)
    ledger = run.services.ledger
    attempt = ledger.advance(attempt, AttemptState.RUNNING, pod_uid="u-1", node="gpu-1", started_at=started_at)
    return ledger.renew_lease(attempt, LAST_RENEWED + run.services.configuration.runs.lease)


def at_the_start(run: Carried) -> Attempt:
    run.services = at(run.services, START)
    attempt = run.place()
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = run.services.ledger.advance(attempt, state)
    return attempt


@dataclass(frozen=True, kw_only=True)
class Case:
    """What was noted, what became of the pod, and what is expected of the attempt."""

    noted: bool
    phase: PodPhase
    exit_code: int | None = None
    finished_at: datetime | None = None
    outcome: Outcome
    ended_at: datetime


CASES = {
    "its pod is gone and nobody knows why": Case(
        noted=False, phase=PodPhase.GONE, outcome=Outcome.PREEMPTED, ended_at=LAST_RENEWED
    ),
    "it was asked to end and its pod is gone": Case(
        noted=True, phase=PodPhase.GONE, outcome=Outcome.CANCELLED, ended_at=LAST_RENEWED
    ),
    "it was asked to end and its pod tells when it did": Case(
        noted=True,
        phase=PodPhase.FAILED,
        exit_code=75,
        finished_at=FINISHED,
        outcome=Outcome.CANCELLED,
        ended_at=FINISHED,
    ),
    "it was asked to end and had succeeded": Case(
        noted=True,
        phase=PodPhase.SUCCEEDED,
        exit_code=0,
        finished_at=FINISHED,
        outcome=Outcome.SUCCEEDED,
        ended_at=FINISHED,
    ),
    "its pod failed and its node took with it when": Case(
        noted=False, phase=PodPhase.FAILED, outcome=Outcome.PREEMPTED, ended_at=LAST_RENEWED
    ),
    "its program failed": Case(
        noted=False,
        phase=PodPhase.FAILED,
        exit_code=3,
        finished_at=FINISHED,
        outcome=Outcome.FAILED,
        ended_at=FINISHED,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_ends_as_noted_unless_it_succeeded_and_is_billed_for_what_is_known(
    case: Case, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    attempt = abandoned(run)
    if case.noted:
        attempt = note_ending(at(run.services, LAST_RENEWED), attempt, VerdictKind.DELETED_BY_PERSON, NOTED)
    pod = PodState(name=attempt.label, phase=case.phase, exit_code=case.exit_code, finished_at=case.finished_at)

    settled = settle_over(at(run.services, FOUND), attempt, pod)

    assert settled is not None
    assert (settled.outcome, settled.ended_at) == (case.outcome, case.ended_at)
    assert str(settled.reason).startswith(NOTED) is (case.outcome is Outcome.CANCELLED)
    assert ("is the last that is known of it" in str(settled.reason)) is (case.finished_at is None)
    (cost,) = run.services.ledger.costs(run.run)
    assert (cost.started_at, cost.ended_at) == (START, case.ended_at)
    rests = [rest.reason for rest in run.services.ledger.cool_downs(FOUND)]
    assert len(rests) == (case.outcome is Outcome.PREEMPTED)


def test_whoever_asks_a_pod_to_end_has_looked_after_it_then(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    attempt = abandoned(run)
    asked_at = LAST_RENEWED + 30 * MINUTE
    attempt = note_ending(at(run.services, asked_at), attempt, VerdictKind.DELETED_BY_PERSON, NOTED)

    settled = settle_over(at(run.services, FOUND), attempt, PodState(name=attempt.label, phase=PodPhase.GONE))

    assert settled is not None
    assert settled.ended_at == asked_at


def say_the_last_word(run: Carried, told_at: datetime, *, began_at: datetime | None = None) -> None:
    """The trainer's, of the first attempt."""
    began = began_at and began_at.isoformat()
    progress = Progress(first_step=1, step=900, total_steps=1000, loss=None, at=told_at.isoformat(), began_at=began)
    write_progress(run.services.site("onprem").checkpoints, run.run, 1, progress)


def test_the_start_that_the_cluster_tells_stays_whatever_the_trainer_tells_to_whoever_has_not_seen_it(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    seen = run.services.ledger.attempt(run.run, at_the_start(run).number)
    run.services.ledger.advance(seen, AttemptState.RUNNING, pod_uid="u-1", node="gpu-1", started_at=START)
    say_the_last_word(run, LAST_RENEWED, began_at=START + timedelta(microseconds=7))
    services = at(run.services, FOUND)
    settled = settle(services, replace(seen, pod_uid="u-1"), Ended(kind=VerdictKind.SUCCEEDED, reason="done"))
    assert settled.started_at == START


@pytest.mark.parametrize(
    ("told_at", "ended_at"),
    [
        (LAST_RENEWED - MINUTE, LAST_RENEWED),
        (LAST_RENEWED + 540 * MINUTE, LAST_RENEWED + 540 * MINUTE),
        (FOUND + MINUTE, FOUND),
    ],
    ids=["before the last look", "hours after it", "by a clock that is ahead"],
)
def test_a_pod_that_is_gone_is_billed_to_the_last_word_of_its_trainer_where_nobody_looked_later(
    open_run: Carry, make_job: MakeJob, told_at: datetime, ended_at: datetime
) -> None:
    run = open_run(make_job())
    attempt = abandoned(run)
    say_the_last_word(run, told_at)

    settle_over(at(run.services, FOUND), attempt, PodState(name=attempt.label, phase=PodPhase.GONE))

    assert [cost.ended_at for cost in run.services.ledger.costs(run.run)] == [ended_at]


def test_a_last_word_that_could_not_be_read_is_billed_later_however_long_before_the_attempt_had_ended(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    attempt, found = abandoned(run), at(run.services, FOUND)
    settle_over(found, attempt, PodState(name=attempt.label, phase=PodPhase.GONE))
    assert [cost.ended_at for cost in run.services.ledger.costs(run.run)] == [LAST_RENEWED]

    say_the_last_word(run, LAST_RENEWED + 540 * MINUTE)
    swept = sweep(found, lambda origin: True, run.said.append)

    assert [(entry.attempt, entry.remedy) for entry in swept] == [(attempt.label, Remedy.REBOOKED)]
    assert [cost.ended_at for cost in run.services.ledger.costs(run.run)] == [LAST_RENEWED + 540 * MINUTE]


def test_a_price_that_is_corrected_while_a_sweep_looks_for_the_end_of_a_pod_stays_corrected(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    ledger, gone = run.services.ledger, PodState(name="", phase=PodPhase.GONE)
    settled = settle_over(at(run.services, FOUND), abandoned(run), gone)
    assert settled is not None
    (booked,) = ledger.costs(run.run)
    say_the_last_word(run, LAST_RENEWED + 540 * MINUTE)

    def slowly() -> datetime:
        ledger.correct(booked, lambda entry: repriced(entry, Decimal("99.5")), reason="rebate", now=FOUND)
        return FOUND

    rebook(replace(run.services, clock=slowly), settled, gone, "late")

    (late,) = ledger.costs(run.run)
    assert late == prolonged(repriced(booked, Decimal("99.5")), LAST_RENEWED + 540 * MINUTE)


def test_a_shorter_lease_bills_nothing_that_is_still_to_come(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    attempt = abandoned(run)
    configuration = run.services.configuration
    runs = replace(configuration.runs, lease=timedelta(seconds=1))
    found = LAST_RENEWED + timedelta(seconds=2)
    lowered = replace(at(run.services, found), configuration=replace(configuration, runs=runs))

    settled = settle_over(lowered, attempt, PodState(name=attempt.label, phase=PodPhase.GONE))

    assert settled is not None
    assert settled.ended_at == found


def test_it_never_ends_before_it_began(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    began = LAST_RENEWED + MINUTE
    attempt = abandoned(run, started_at=began)

    settled = settle_over(at(run.services, FOUND), attempt, PodState(name=attempt.label, phase=PodPhase.GONE))

    assert settled is not None
    assert settled.ended_at == began


def test_a_pod_that_is_not_over_is_left_alone(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    attempt = abandoned(run)

    assert settle_over(at(run.services, FOUND), attempt, PodState(name=attempt.label, phase=PodPhase.RUNNING)) is None
    assert run.attempts == (attempt,)


LAST_WORDS = {
    "a trainer that said nothing": (None, LAST_RENEWED),
    "a trainer that was heard of later": (LAST_RENEWED + 540 * MINUTE, LAST_RENEWED + 540 * MINUTE),
}
last_words = pytest.mark.parametrize(("told_at", "ended_at"), LAST_WORDS.values(), ids=LAST_WORDS)


@last_words
def test_a_watch_that_begins_after_a_long_silence_bills_nothing_of_it_that_is_not_known(
    open_run: Carry, make_job: MakeJob, told_at: datetime | None, ended_at: datetime
) -> None:
    run = open_run(make_job())
    watch = Watch(services=at(run.services, FOUND), attempt=abandoned(run))
    if told_at is not None:
        say_the_last_word(run, told_at)

    ended = watch.poll().ended

    assert ended is not None
    assert ended.at == ended_at


@last_words
def test_a_run_that_is_cancelled_long_after_its_pod_was_gone_is_billed_for_what_is_known(
    open_run: Carry, make_job: MakeJob, told_at: datetime | None, ended_at: datetime
) -> None:
    run = open_run(make_job())
    abandoned(run)
    if told_at is not None:
        say_the_last_word(run, told_at)

    settled = cancel(at(run.services, FOUND), run.run, NOTED, run.said.append)

    assert settled is not None
    assert (settled.outcome, settled.ended_at) == (Outcome.CANCELLED, ended_at)
    assert [cost.ended_at for cost in run.services.ledger.costs(run.run)] == [ended_at]


class LeftBehind:
    """A cluster whose node took along when the container of a pod ended, and its log."""

    def state(self, pod_name: str, *, last_node: str | None = None) -> PodState:
        return PodState(name=pod_name, phase=PodPhase.FAILED, uid="u-1", node=last_node)

    def logs(self, pod_name: str, **_: object) -> LogLines:
        return LogLines(lines=(), until=None)


def test_a_watch_bills_what_is_known_of_a_pod_that_does_not_tell_when_it_failed(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    attempt = abandoned(run)
    site = replace(run.services.site("onprem"), client=cast(ClusterClient, LeftBehind()))
    services = replace(at(run.services, FOUND), open_site=lambda cluster: site, _opened={})

    ended = Watch(services=services, attempt=attempt).poll().ended

    assert ended is not None
    assert ended.at == LAST_RENEWED
