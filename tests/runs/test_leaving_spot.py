"""Runs on spot whose deadline comes near: moved to what nobody takes away, once, or left there for the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spillway.checkpoints.progress import Progress, write_progress
from spillway.deadlines import ORDERED_BY
from spillway.model import Attempt, AttemptState, Billing, CloudAccess, JobSpec, MoveState, Outcome
from spillway.runs.deadline import RETRY, DeadlineWatch, Standing, late_runs
from spillway.runs.engine import Watching
from spillway.runs.explaining import explained, told
from spillway.runs.migrating import order_move
from spillway.runs.move_plan import NOT_SPOT, move_plan
from spillway.runs.services import Services
from spillway.runs.watching import Watch
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.standing_run import standing

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

LATE: dict[str, Any] = {
    "gpu_model": "H100",
    "spot_ok": True,
    "expected_duration": timedelta(hours=1),
    "finish_within": timedelta(hours=1),
}
"""It can run in the cloud only, and should have been on-demand from its beginning."""


def without_on_demand(services: Services) -> Services:
    """Those of somebody who may buy nothing but spot."""
    configuration = services.configuration
    access = {"research": CloudAccess(clusters=None, billing=frozenset({Billing.SPOT}))}
    policy = replace(configuration.policy, cloud_access=access)
    return replace(services, configuration=replace(configuration, policy=policy))


def training(run: Carried) -> Attempt:
    """An attempt on spot that the ledger knows as running; it has no pod."""
    everything, run.services = run.services, without_on_demand(run.services)
    attempt = run.place()
    run.services = everything
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED, AttemptState.RUNNING):
        attempt = everything.ledger.advance(attempt, state, image_digest=f"sha256:{'0' * 64}")
    assert attempt.candidate.billing is Billing.SPOT
    return attempt


def test_a_run_leaves_spot_for_its_deadline_without_losing_a_step(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(steps=100_000, every=20, pace=0.1, grace=timedelta(seconds=20), **LATE))
    everything, run.services = run.services, without_on_demand(run.services)
    step = run.advance()
    assert isinstance(step, Watching)
    watch = Watch(services=run.services, attempt=step.attempt)
    refused = eventually(watch.poll, lambda look: "tried again" in look.summary)
    assert "cloud/gpu/on-demand: cloud-access: " in refused.summary
    assert refused.move is None and refused.ended is None
    assert "done about" in refused.summary and "deadline" in refused.summary

    run.services = everything
    run.start()
    run.running(2)
    move = eventually(lambda: next((m for m in everything.ledger.moves(run.run) if not m.open), None), seconds=60)

    first, second = run.attempts
    assert (move.state, move.to_attempt) == (MoveState.DONE, 2), move.problem
    assert (first.candidate.billing, first.outcome) == (Billing.SPOT, Outcome.MIGRATED)
    assert second.candidate == replace(first.candidate, billing=Billing.ON_DEMAND)
    assert first.last_step == first.committed_step == second.resumed_from_step
    assert move.origin["ordered_by"] == ORDERED_BY and move.reason.startswith("its deadline ")
    assert f"cloud/gpu/spot -> cloud/gpu/on-demand: {move.reason}" in run.story
    schedule = everything.ledger.schedule(run.run, run.job, everything.clock())
    assert schedule is not None and schedule.moved, "it is never placed on spot again while anything else is to be had"
    ordered = [
        entry for entry in explained(everything.ledger, run.run) if entry.title == f"order to move to {NOT_SPOT}"
    ]
    assert [entry.otherwise for entry in ordered] == [None]
    assert "of 1:00:00 left to train: late for it" in told(ordered[0].record)


def look(run: Carried, watch: DeadlineWatch, at: datetime, progress: Progress | None = None) -> Standing:
    standing = watch.look(run.services, run.attempts[-1], progress, at)
    assert standing is not None
    return standing


def test_a_move_that_fails_is_ordered_again_later_and_by_whoever_watches_then(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**LATE))
    leaving = training(run)
    now, watch, ledger = run.services.clock(), DeadlineWatch(), run.services.ledger
    planned = move_plan(run.services, run.run, NOT_SPOT)
    assert ledger.moves(run.run) == ()

    ordered = look(run, watch, now).move
    assert ordered is not None and ordered.target == planned.target == replace(
        leaving.candidate, billing=Billing.ON_DEMAND
    )
    assert look(run, DeadlineWatch(), now).move == ordered, "another watcher goes on with it"
    failed = ledger.fail_move(ordered, "the target is not ready", now)
    assert failed.state is MoveState.FAILED

    for watcher in (watch, DeadlineWatch()):
        assert look(run, watcher, now + RETRY / 2).move is None
    again = look(run, watch, now + RETRY).move
    assert again is not None and again.number == 2
    ledger.drain_move(again, now)
    assert look(run, watch, now + 2 * RETRY).move is None, "whoever carries the run obeys already"


def test_a_deadline_orders_nothing_while_a_person_moves_the_run_or_there_is_time(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(**LATE))
    training(run)
    order_move(run.services, run.run, NOT_SPOT, "a person's", run.said.append, origin={"ordered_by": "a person"})
    assert look(run, DeadlineWatch(), run.services.clock()).move is None

    early = open_run(make_job(**LATE | {"finish_within": timedelta(days=2)}))
    training(early)
    standing = look(early, DeadlineWatch(), early.services.clock())
    assert standing.move is None
    assert "on spot until" in standing.told
    assert early.services.ledger.moves(early.run) == ()


def test_a_run_whose_steps_take_longer_than_its_job_said_leaves_spot_when_that_is_seen(
    open_run: Carry, make_job: MakeJob
) -> None:
    """It had nearly two days to spare, and by the pace of its steps it has none."""
    run = open_run(make_job(**LATE | {"finish_within": timedelta(days=2)}))
    training(run)
    now, watch = run.services.clock(), DeadlineWatch()
    assert look(run, watch, now).move is None
    slow = Progress(first_step=1, step=10, total_steps=60, loss=None, at=now.isoformat(), step_seconds=3600.0)
    for passed in (timedelta(minutes=10), timedelta(minutes=10) + RETRY / 2):
        assert look(run, watch, now + passed, slow).move is None, "it was asked only a moment ago"
    assert look(run, watch, now + timedelta(minutes=10) + RETRY, slow).move is not None


def test_a_run_whose_steps_are_all_done_is_not_late(open_run: Carry, make_job: MakeJob) -> None:
    """Its last checkpoint is on its way, and its job said that it takes twice the time that it has left."""
    run = open_run(make_job(expected_duration=timedelta(hours=2), finish_within=timedelta(hours=1)))
    attempt, now = standing(run, committed=()), run.services.clock()
    done = Progress(first_step=1, step=100, total_steps=100, loss=None, at=now.isoformat(), step_seconds=1.0)
    write_progress(run.checkpoints("onprem").store, run.run, attempt.number, done)
    assert late_runs(run.services) == ()


@pytest.mark.parametrize(("step_seconds", "late"), [(3600.0, True), (0.1, False), (None, True)], ids=str)
def test_a_run_that_trains_is_late_by_the_pace_of_its_steps_and_before_it_has_one_by_what_its_job_says(
    open_run: Carry, make_job: MakeJob, step_seconds: float | None, late: bool
) -> None:
    """Nothing of an hour's work is committed, and the hour has begun."""
    run = open_run(make_job(expected_duration=timedelta(hours=1), finish_within=timedelta(hours=1)))
    attempt = standing(run, committed=())
    now = run.services.clock()
    told = Progress(first_step=1, step=4, total_steps=100, loss=None, at=now.isoformat(), step_seconds=step_seconds)
    write_progress(run.checkpoints("onprem").store, run.run, attempt.number, told)
    found = {late.run: late.expected_at - late.deadline for late in late_runs(run.services)}
    assert (run.run in found) is late
    if step_seconds:
        assert found.get(run.run, timedelta(hours=95)) > timedelta(hours=94)
