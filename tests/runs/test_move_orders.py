"""Orders that are refused: each says what was seen, what was expected and what to do, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spillway.errors import MoveRefused, SpillwayError, UnknownName
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    CloudAccess,
    JobSpec,
    Move,
    MoveState,
    Outcome,
    Tier,
    VerdictKind,
)
from spillway.runs.migrating import bring, drain, order_move
from spillway.runs.settling import Ended, settle
from spillway.testing.carried_run import Carried
from spillway.testing.standing_run import standing

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def in_state(run: Carried, state: AttemptState) -> Attempt:
    """The run's first attempt, on premises, as the ledger knows it; it has no pod."""
    attempt = run.place()
    for step in (AttemptState.STAGED, AttemptState.LAUNCHED, AttemptState.RUNNING):
        if attempt.state is not state:
            attempt = run.services.ledger.advance(attempt, step, image_digest=f"sha256:{'0' * 64}")
    return attempt


def told(
    run: Carried, where: str = "cloud", *, name: str | None = None, kind: type[SpillwayError] = MoveRefused
) -> str:
    """What the order is answered with; nothing is on record of it."""
    before = run.services.ledger.reservations()
    with pytest.raises(kind) as refused:
        order_move(run.services, name or run.run, where, "a test", run.said.append, origin={"test": where})
    assert run.services.ledger.moves(run.run) == ()
    assert run.services.ledger.reservations() == before
    return str(refused.value)


@pytest.mark.parametrize(
    ("where", "answer"),
    [
        ("clowd", "unknown cluster 'clowd'; known: best, cloud, not-spot, onprem. Did you mean 'cloud'?"),
        ("cloud/cpu", "unknown pool 'cloud/cpu'; known: cloud/gpu. Did you mean 'cloud/gpu'?"),
        (
            "cloud/gpu/owned",
            "unknown place 'cloud/gpu/owned'; known: cloud/gpu/on-demand, cloud/gpu/spot. "
            "Did you mean 'cloud/gpu/on-demand'?",
        ),
    ],
)
def test_a_place_that_is_not_declared_is_named_with_those_that_are(
    open_run: Carry, make_job: MakeJob, where: str, answer: str
) -> None:
    run = open_run(make_job())
    in_state(run, AttemptState.RUNNING)
    assert told(run, where, kind=UnknownName) == answer


@pytest.mark.parametrize("where", ["", "/", "cloud/", "cloud/gpu/spot/4"])
def test_a_place_that_is_no_place_is_refused_with_the_form_of_one(
    open_run: Carry, make_job: MakeJob, where: str
) -> None:
    run = open_run(make_job())
    in_state(run, AttemptState.RUNNING)
    expected = "expected CLUSTER, CLUSTER/POOL, CLUSTER/POOL/BILLING, 'best' or 'not-spot'"
    assert told(run, where) == f"run '{run.run}' is not moved: its target is '{where}', {expected}"


def test_a_run_that_nobody_knows_is_named_with_the_latest_ones(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    assert told(run, name=f"{run.run}x", kind=UnknownName).endswith(f"Did you mean '{run.run}'?")


@pytest.mark.parametrize("state", [AttemptState.RESERVED, AttemptState.STAGED, AttemptState.LAUNCHED])
def test_a_run_that_does_not_train_yet_is_moved_when_it_does(
    open_run: Carry, make_job: MakeJob, state: AttemptState
) -> None:
    run = open_run(make_job())
    in_state(run, state)
    seen = (
        f"its attempt 1 is {state} at onprem/gpu/owned, expected running; order it when `runs show {run.run}` says so"
    )
    assert seen in told(run)


def test_a_run_that_waits_has_nothing_to_move(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    assert "it waits for a place and has nothing to move, expected one that trains" in told(run)


def test_a_run_that_is_over_is_not_moved(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    run.services.ledger.settle(in_state(run, AttemptState.RUNNING), Outcome.CANCELLED, "enough", run.services.clock())
    assert "it is over (cancelled: enough), expected one that trains; start a new run" in told(run)


@pytest.mark.parametrize("where", ["onprem", "onprem/gpu", "onprem/gpu/owned"])
def test_a_run_is_not_moved_to_where_it_is(open_run: Carry, make_job: MakeJob, where: str) -> None:
    run = open_run(make_job())
    in_state(run, AttemptState.RUNNING)
    assert f"it is at onprem/gpu/owned already, got an order to {where}; name another place, or 'best'" in told(
        run, where
    )


def test_a_run_of_core_data_is_not_moved_to_where_core_may_not_be_stored(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(tier=Tier.CORE))
    in_state(run, AttemptState.RUNNING)
    answer = told(run)
    assert "cloud can never hold it" in answer
    assert "residency: its data is of tier core, the site may store public" in answer
    assert run.services.ledger.transfers(run.run) == ()


def test_a_run_is_not_moved_to_what_never_fits_it(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(gpu_model="A100"))
    in_state(run, AttemptState.RUNNING)
    assert "cloud can never hold it" in told(run)
    assert "gpu-model: needs A100, the pool has H100" in told(run)
    assert "best can never hold it but where it is, at onprem/gpu/owned (" in told(run, "best")


def test_the_same_order_again_is_the_same_move_however_far_it_is(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    ledger, now = run.services.ledger, run.services.clock

    def order(where: str, by: str) -> Move:
        return order_move(run.services, run.run, where, "a test", run.said.append, origin={"by": by})

    leaving = standing(run)
    move = order("cloud", "one")
    assert move.state is MoveState.ORDERED
    assert order("cloud", "another").number == order("best", "a third").number == 1
    with pytest.raises(
        MoveRefused, match=r"move 1 to cloud/gpu/on-demand is under way \(ordered\), got an order to onprem"
    ):
        order("onprem", "another")
    ledger.drain_move(move, now())
    assert order("cloud", "one").state is MoveState.DRAINING
    settle(run.services, leaving, Ended(kind=VerdictKind.MIGRATED, reason="it is moved"))
    arrived = run.place()
    assert order("cloud", "one").state is order("cloud", "another").state is MoveState.ARRIVING
    ledger.confirm_move(ledger.amend(arrived, resumed_from_step=4, first_step=5), now())
    assert order("cloud", "one").state is MoveState.DONE
    assert len(ledger.moves(run.run)) == 1


@pytest.mark.parametrize("by", ["one", "another"])
def test_the_same_order_again_holds_its_target_anew(open_run: Carry, make_job: MakeJob, by: str) -> None:
    run = open_run(make_job())
    standing(run)
    move = order_move(run.services, run.run, "cloud", "a test", run.said.append, origin={"by": "one"})
    lease = move.lease_expires_at - move.ordered_at
    later = replace(run.services, clock=lambda: move.ordered_at + lease / 2)
    again = order_move(later, run.run, "cloud", "a test", run.said.append, origin={"by": by})
    assert again == replace(move, lease_expires_at=move.lease_expires_at + lease / 2)


def test_what_is_brought_for_a_move_that_fails_meanwhile_is_not_taken_for_ready(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    standing(run)
    move = order_move(run.services, run.run, "cloud", "a test", run.said.append, origin={})

    def given_up(line: str) -> None:
        run.services.ledger.expire_moves(move.lease_expires_at)

    with pytest.raises(MoveRefused, match=r"move 1 has failed meanwhile: nobody renewed it.*order it again") as refused:
        bring(run.services, move, given_up)
    assert refused.value.retry_helps


def test_an_order_that_has_failed_may_be_given_again(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    standing(run)
    origin = {"by": "one"}
    first = order_move(run.services, run.run, "cloud", "a test", run.said.append, origin=origin)
    run.services.ledger.fail_move(first, "the target was lost", run.services.clock())
    second = order_move(run.services, run.run, "cloud", "a test", run.said.append, origin=origin)
    assert (second.number, second.state) == (2, MoveState.ORDERED)
    assert [r.attempt for r in run.services.ledger.reservations()] == [f"{run.run}-1", f"{run.run}-2"]


def test_a_run_is_moved_later_to_what_is_full_now(open_run: Carry, make_job: MakeJob) -> None:
    full = open_run(make_job(gpu_model="H100", gpus_per_node=1))
    site = full.services.site("cloud").client.describe()
    free = sum(node.allocatable_gpus for node in site.nodes)
    for _ in range(free):
        open_run(full.job).place()
    run = open_run(make_job())
    in_state(run, AttemptState.RUNNING)
    with pytest.raises(
        MoveRefused, match=r"cloud has no room for it now.*order it again when that has passed"
    ) as refused:
        order_move(run.services, run.run, "cloud", "a test", run.said.append, origin={})
    assert refused.value.retry_helps


def test_a_run_whose_dag_may_use_the_cloud_is_moved_there(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    configuration = run.services.configuration
    access = {run.job.department: CloudAccess(clusters=None, billing=frozenset(Billing), dags=("train",))}
    limited = replace(configuration, policy=replace(configuration.policy, cloud_access=access))
    run.services = replace(run.services, configuration=limited)
    run.run = f"{run.run}-of-dag"
    run.services.ledger.open_run(run.run, run.job, {"dag_id": "train"}, run.services.clock())
    standing(run)
    move = order_move(run.services, run.run, "cloud", "a test", run.said.append, origin={})
    assert drain(run.services, move, run.said.append).state is MoveState.DRAINING
