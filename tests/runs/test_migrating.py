"""Runs that are moved while they train: from the order to the first resumed step, and what may be lost on the way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spillway.errors import MoveRefused, NoProgress
from spillway.ledger import TransferKind
from spillway.losses import VerdictKind
from spillway.model import AttemptState, JobSpec, Move, MoveState, Outcome
from spillway.runs.engine import Watching, conclude
from spillway.runs.evidence import evidence, timeline
from spillway.runs.explaining import again
from spillway.runs.launching import fence
from spillway.runs.migrating import bring, confirmed, drain, migrate, order_move, story
from spillway.runs.move_plan import move_plan
from spillway.runs.settling import Ended, settle
from spillway.runs.stopping import note_ending
from spillway.runs.watching import Watch
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation
from spillway.testing.standing_run import standing

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 20, "pace": 0.1, "grace": timedelta(seconds=20)}
ORIGIN = {"ordered_by": "a test"}
STAGES = ("drained", "placed", "staged", "launched")


def ready(run: Carried) -> Move:
    """An order to the cloud, all that the run needs there."""
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin=ORIGIN)
    return bring(run.services, move, run.said.append)


def arriving(run: Carried, stage: str) -> None:
    """A run that has left its source for the cloud and has got so far there."""
    leaving, ledger = standing(run), run.services.ledger
    drain(run.services, ready(run), run.said.append)
    settle(run.services, leaving, Ended(kind=VerdictKind.MIGRATED, reason="it is moved"))
    if stage == "drained":
        return
    attempt = run.place()
    if stage != "placed":
        attempt = ledger.advance(attempt, AttemptState.STAGED, image_digest=leaving.image_digest)
    if stage == "launched":
        fence(run.services, attempt, run.said.append)
        ledger.advance(attempt, AttemptState.LAUNCHED, resumed_from_step=4)


def cut(installation: Installation, run: Carried, *connections: str) -> None:
    """Nothing answers any more where these Connections lead, for whoever carries or moves the run."""
    written = json.loads(installation.connections.read_text())
    for conn_id in connections:
        extra = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", written[conn_id].get("extra", "{}"))
        installation.connection(conn_id, extra=extra, port=1)
    for site in ("onprem", "cloud"):
        run.services.forget(site)


def carried_on(run: Carried) -> Watching:
    """The watch for the first attempt back on premises; of others the end is waited for."""
    while True:
        step = run.advance()
        assert isinstance(step, Watching), step
        if step.attempt.candidate.cluster == "onprem":
            return step
        watch = Watch(services=run.services, attempt=step.attempt)
        ended = eventually(lambda watch=watch: watch.poll().ended, seconds=60)
        conclude(run.services, run.run, step.attempt.number, ended, run.said.append)


def test_a_run_is_moved_without_losing_a_step_or_paying_twice(
    installation: Installation, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(**ENDLESS))
    run.running(1, committed=1)
    planned = move_plan(run.services, run.run, "cloud")

    done = migrate(run.services, run.run, "cloud", "maintenance", run.said.append, origin=ORIGIN, poll_seconds=0.2)

    first, second = run.attempts
    assert (first.outcome, second.candidate) == (Outcome.MIGRATED, done.target)
    assert first.last_step == first.committed_step == second.resumed_from_step
    assert second.first_step == done.resumed_step == int(str(first.committed_step)) + 1
    assert (done.state, done.attempt, done.to_attempt, done.reason) == (MoveState.DONE, 1, 2, "maintenance")
    assert "trained up to step" not in run.story
    assert run.services.ledger.cool_downs(run.services.clock()) == ()
    assert [r.attempt for r in run.services.ledger.reservations()] == [second.label], "the source is released"
    assert installation.pods_ever(run.run) == (("cloud", second.label), ("onprem", first.label))
    assert [cost.attempt for cost in run.services.ledger.costs(run.run)] == [first.label]
    kinds = [line.kind for line in run.services.ledger.transfers(run.run) if line.destination == "cloud"]
    assert kinds.count(TransferKind.CHECKPOINT) >= 2, "once while it trained, once for the last one"
    assert done.took is not None and done.paused is not None and done.took > done.paused > timedelta()
    assert planned.target == done.target
    assert set(planned.estimate.unknown) <= {"restart"}
    found = evidence(run.services, run.run)
    (told,) = found["moves"]
    assert told["took_seconds"] == done.took.total_seconds()
    assert told["estimated_seconds"] == done.estimate.known.total_seconds()
    assert story(done) in timeline(found)
    decisions = run.services.ledger.decisions(run.run)
    assert [again(decision).otherwise for decision in decisions] == [None] * 3


def test_a_dry_run_says_what_a_move_takes_and_changes_nothing(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    standing(run)
    before = run.services.ledger.reservations()

    planned = move_plan(run.services, run.run, "cloud/gpu")

    assert (planned.target.cluster, planned.target.billing) == ("cloud", "on-demand")
    assert planned.data["estimate"]["unknown"] == list(planned.estimate.unknown)
    assert {row["candidate"]: row["verdict"] for row in planned.data["table"]}["onprem/gpu/owned"] == "never"
    assert "would move" in planned.text and "advice: " in planned.text
    assert run.services.ledger.moves(run.run) == ()
    assert run.services.ledger.reservations() == before
    assert run.committed("cloud") == ()


@pytest.mark.parametrize("lost", ["target", "link", "source"])
def test_a_run_stays_where_it_is_when_something_is_lost_while_the_target_is_made_ready(
    installation: Installation, open_run: Carry, make_job: MakeJob, lost: str
) -> None:
    run = open_run(make_job())
    leaving = standing(run)
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin=ORIGIN)
    cut(installation, run, {"target": "cloud_kubernetes", "link": "cloud_store", "source": "onprem_store"}[lost])

    with pytest.raises(MoveRefused, match=r"is not ready for it.*it goes on where it is"):
        bring(run.services, move, run.said.append)

    assert run.services.ledger.open_attempt(run.run) == leaving
    assert run.services.ledger.move(run.run, 1).state is MoveState.FAILED
    assert [r.attempt for r in run.services.ledger.reservations()] == [leaving.label]
    with pytest.raises(MoveRefused, match="move 1 to cloud/gpu/on-demand failed"):
        confirmed(run.services, move)


def test_a_run_is_not_asked_to_end_for_a_target_that_was_lost_since_it_was_made_ready(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    leaving = standing(run)
    move = ready(run)
    cut(installation, run, "cloud_kubernetes")

    with pytest.raises(MoveRefused, match=r"cloud/gpu/on-demand .*(unreachable|misconfigured).*it goes on where it is"):
        drain(run.services, move, run.said.append)

    assert run.services.ledger.open_attempt(run.run) == leaving
    assert [r.attempt for r in run.services.ledger.reservations()] == [leaving.label]


def test_whoever_orders_too_and_fails_late_does_not_fail_the_move_of_a_run_that_was_asked_to_leave(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    standing(run)
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin=ORIGIN)

    def drained_by_another(line: str) -> None:
        run.services.ledger.drain_move(move, run.services.clock())
        cut(installation, run, "cloud_store")

    late = bring(run.services, move, drained_by_another)

    assert late.state is run.services.ledger.move(run.run, 1).state is MoveState.DRAINING
    assert drain(run.services, late, run.said.append) == late
    assert not confirmed(run.services, late)


@pytest.mark.slow
@pytest.mark.parametrize("state", [MoveState.ORDERED, MoveState.DRAINING])
def test_a_run_whose_source_is_lost_goes_on_at_the_target_that_is_held_for_it(
    installation: Installation, open_run: Carry, make_job: MakeJob, state: MoveState
) -> None:
    run = open_run(make_job())
    leaving = standing(run)
    move = ready(run)
    if state is MoveState.DRAINING:
        drain(run.services, move, run.said.append)
    cut(installation, run, "onprem_kubernetes", "onprem_store")
    settle(run.services, leaving, Ended(kind=VerdictKind.CLUSTER_UNREACHABLE, reason="onprem has not answered"))

    step = run.advance()

    assert isinstance(step, Watching)
    assert (step.attempt.number, step.attempt.candidate, step.attempt.resumed_from_step) == (2, move.target, 4)
    now = run.services.ledger.move(run.run, 1)
    assert (now.state, now.to_attempt) == (MoveState.ARRIVING, 2)


@pytest.mark.parametrize(
    ("stage", "lost"),
    [
        ("drained", "target"),
        ("launched", "target"),
        *(pytest.param(stage, "target", marks=pytest.mark.slow) for stage in ("placed", "staged")),
        *(pytest.param(stage, "link", marks=pytest.mark.slow) for stage in STAGES),
    ],
)
def test_a_run_goes_back_when_its_target_is_lost_on_the_way(
    installation: Installation, open_run: Carry, make_job: MakeJob, stage: str, lost: str
) -> None:
    run = open_run(make_job())
    arriving(run, stage)
    cut(installation, run, {"target": "cloud_kubernetes", "link": "cloud_store"}[lost])

    step = carried_on(run)

    *_, last = run.attempts
    assert (step.attempt.label, last.candidate.cluster, last.resumed_from_step) == (last.label, "onprem", 4)
    assert [attempt.outcome for attempt in run.attempts[:-1]] == [Outcome.MIGRATED, Outcome.PREEMPTED][
        : last.number - 1
    ]
    move = run.services.ledger.move(run.run, 1)
    assert move.state is MoveState.FAILED and move.problem
    assert [r.attempt for r in run.services.ledger.reservations()] == [last.label]
    assert run.services.ledger.costs(run.run) == ()


def test_a_run_whose_source_is_lost_on_the_way_resumes_from_what_was_brought_before(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    arriving(run, "handed over")
    cut(installation, run, "onprem_kubernetes", "onprem_store", "onprem_registry")

    step = run.advance()

    assert isinstance(step, Watching)
    assert (step.attempt.candidate.cluster, step.attempt.resumed_from_step) == ("cloud", 4)


def test_what_a_target_does_to_a_run_before_its_first_step_there_does_not_fail_the_run(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    arriving(run, "handed over")
    arrived = run.attempts[-1]
    settled = settle(run.services, arrived, Ended(kind=VerdictKind.PROGRAM_ERROR, reason="no such driver"))
    assert settled.outcome is Outcome.PREEMPTED
    assert settled.reason == "the place that it was moved to failed it: no such driver"
    assert [rest.cluster for rest in run.services.ledger.cool_downs(run.services.clock())] == ["cloud"]
    again = run.place()
    assert again.candidate.cluster == "onprem"
    assert settle(run.services, again, Ended(kind=VerdictKind.PROGRAM_ERROR, reason="x")).outcome is Outcome.FAILED


def test_a_person_who_ends_a_run_that_is_drained_ends_it(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    leaving = standing(run)
    drain(run.services, ready(run), run.said.append)
    note_ending(run.services, leaving, VerdictKind.MIGRATED, "it is moved")
    note_ending(run.services, leaving, VerdictKind.DELETED_BY_PERSON, "enough seen")

    settled = settle(run.services, leaving, Ended(kind=VerdictKind.MIGRATED, reason="it is moved"))

    assert settled.outcome is Outcome.CANCELLED
    assert (settled.reason or "").startswith("enough seen")
    move = run.services.ledger.move(run.run, 1)
    assert move.problem == f"its run ended before: cancelled ({settled.reason})"
    assert run.services.ledger.reservations() == ()


def test_a_move_counts_neither_as_an_attempt_without_progress_nor_as_progress(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    for outcome in (Outcome.PREEMPTED, Outcome.PREEMPTED, Outcome.MIGRATED):
        attempt = run.services.ledger.amend(run.place(), pod_uid="u")
        run.services.ledger.settle(attempt, outcome, str(outcome), run.services.clock())
    assert isinstance(run.advance(), Watching), "two were lost, one was moved"
    run.services.ledger.settle(run.attempts[-1], Outcome.PREEMPTED, "preempted", run.services.clock())
    with pytest.raises(NoProgress, match="3 attempts in a row"):
        run.advance()
