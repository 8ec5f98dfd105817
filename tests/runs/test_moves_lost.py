"""What a watch makes of an order to move, and moves whose source, target or mover is lost under a pod that trains."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.rights import Right
from spillway.errors import MoveRefused, Unreachable
from spillway.model import Attempt, Cluster, JobSpec, MoveState, Outcome, PodPhase, PodState, VerdictKind
from spillway.runs.engine import Watching, advance
from spillway.runs.migrating import bring, confirmed, drain, order_move
from spillway.runs.services import Site
from spillway.runs.settling import Ended, settle
from spillway.runs.sweeping import sweep
from spillway.sandbox import drills
from spillway.sandbox.settings import SandboxSettings
from spillway.testing.carried_run import Carried
from spillway.testing.one_pod import watched
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation
from spillway.testing.standing_run import standing

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 20, "pace": 0.1, "grace": timedelta(seconds=20)}


def ordered(run: Carried, *, draining: bool) -> Attempt:
    """The attempt of a run that is to move to the cloud."""
    leaving = standing(run)
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin={})
    if draining:
        run.services.ledger.drain_move(move, run.services.clock())
    return leaving


def test_a_watch_asks_the_pod_to_end_when_the_run_is_to_leave_and_not_before(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    watch, cluster = watched(run, ordered(run, draining=False))
    assert watch.poll().summary.startswith("running on node onprem-1; step 4 of 100, ")
    assert not cluster.stopped
    (move,) = run.services.ledger.moves(run.run)
    run.services.ledger.drain_move(move, run.services.clock())

    assert watch.poll().summary == "it is moved to cloud/gpu/on-demand: maintenance; waiting for the pod to end"

    assert cluster.stopped
    assert run.attempts[0].ending is VerdictKind.MIGRATED
    cluster.pod = replace(cluster.pod, phase=PodPhase.FAILED, exit_code=75, finished_at=datetime.now(UTC))
    ended = watch.poll().ended
    assert ended is not None and ended.kind is VerdictKind.MIGRATED


ENDINGS = {
    "a success": ({"phase": PodPhase.SUCCEEDED, "exit_code": 0}, VerdictKind.SUCCEEDED),
    "a failure": ({"phase": PodPhase.FAILED, "exit_code": 1}, VerdictKind.PROGRAM_ERROR),
    "an eviction": ({"phase": PodPhase.FAILED, "reason": "Evicted"}, VerdictKind.PREEMPTED),
}


@pytest.mark.parametrize(("facts", "kind"), ENDINGS.values(), ids=ENDINGS)
def test_a_pod_that_ended_before_it_was_asked_to_has_ended_as_it_says(
    open_run: Carry, make_job: MakeJob, facts: dict[str, Any], kind: VerdictKind
) -> None:
    run = open_run(make_job())
    watch, cluster = watched(run, ordered(run, draining=True), finished_at=datetime.now(UTC), **facts)
    ended = watch.poll().ended
    assert ended is not None and ended.kind is kind
    assert not cluster.stopped


def test_a_sweep_frees_what_a_dead_mover_held_and_the_run_trains_on(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    leaving = ordered(run, draining=False)
    later = run.services.clock() + 2 * run.services.configuration.runs.lease
    run.services.ledger.renew_lease(leaving, later + timedelta(hours=1))
    sweep(replace(run.services, clock=lambda: later), lambda origin: True, run.said.append)
    (move,) = run.services.ledger.moves(run.run)
    assert move.state is MoveState.FAILED and "nobody renewed it" in str(move.problem)
    assert [r.attempt for r in run.services.ledger.reservations()] == [leaving.label]


class LackingRights:
    """A cluster whose identity may do less than a run needs."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def missing_rights(self) -> tuple[Right, ...]:
        swept = Right(resource="secrets", verbs=("list", "delete"), to_run=False)
        return (Right(resource="pods", verbs=("create", "delete")), swept)


def test_a_run_stays_where_it_is_when_no_pod_of_it_could_start_at_the_target(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    leaving = standing(run)

    def open_site(declared: Cluster) -> Site:
        site = run.services.open_site(declared)
        return replace(site, client=LackingRights(site.client))  # type: ignore[arg-type]

    lacking = replace(run.services, open_site=open_site, _opened={})
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin={})
    with pytest.raises(MoveRefused, match=r"the identity at cloud may not create, delete pods; `preflight`"):
        bring(lacking, move, run.said.append)

    installation.connection("cloud_store_pods", extra=json.dumps({"endpoint_url": "http://s", "verify": "/no/such/ca"}))
    run.services.forget("cloud")
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin={})
    with pytest.raises(MoveRefused, match=r"cloud_store_pods.extra.verify: expected a file of certificates"):
        bring(run.services, move, run.said.append)
    assert run.services.ledger.open_attempt(run.run) == leaving
    assert [r.attempt for r in run.services.ledger.reservations()] == [leaving.label]


def test_a_run_that_nobody_carries_to_its_target_is_not_waited_for(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    settle(run.services, ordered(run, draining=True), Ended(kind=VerdictKind.MIGRATED, reason="it is moved"))
    arrived = run.place()
    (move,) = run.services.ledger.moves(run.run)
    assert not confirmed(run.services, move)

    with pytest.raises(MoveRefused, match=r"nobody carries attempt 2 at cloud/gpu/on-demand.*`runs start`") as refused:
        confirmed(replace(run.services, clock=lambda: arrived.lease_expires_at), move)

    assert refused.value.retry_helps
    assert run.services.ledger.move(run.run, 1) == move


class LosesAnswers:
    """A cluster that creates what it is asked to, and is not heard of it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def launch(self, pod: Mapping[str, Any]) -> PodState:
        created = self._inner.launch(pod)
        raise Unreachable(created.cluster, "the connection was reset")


def test_a_pod_at_the_target_whose_creation_was_not_answered_is_watched(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    settle(run.services, ordered(run, draining=True), Ended(kind=VerdictKind.MIGRATED, reason="it is moved"))

    def open_site(declared: Cluster) -> Site:
        site = run.services.open_site(declared)
        return replace(site, client=LosesAnswers(site.client))  # type: ignore[arg-type]

    unheard = replace(run.services, open_site=open_site, _opened={})
    step = advance(unheard, run.run, run.job, run.said.append)

    assert isinstance(step, Watching), step
    arrived = run.attempts[1]
    assert step.attempt == arrived and arrived.outcome is None
    assert (arrived.candidate.cluster, arrived.pod_uid) == ("cloud", run.pod(arrived).uid)
    assert run.services.ledger.move(run.run, 1).state is MoveState.ARRIVING


def drained(run: Carried) -> Attempt:
    """The attempt of a run that trains on premises and was just asked to leave for the cloud."""
    attempt = run.running(1, committed=1)
    move = order_move(run.services, run.run, "cloud", "maintenance", run.said.append, origin={})
    drain(run.services, bring(run.services, move, run.said.append), run.said.append)
    return attempt


@pytest.mark.slow
def test_a_run_whose_node_is_lost_while_it_is_drained_arrives(
    sandbox: SandboxSettings, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(**ENDLESS))
    first = drained(run)
    drills.node_loss(sandbox, str(first.node))
    second = run.running(2)
    durable = run.committed("onprem")[-1]
    assert run.attempts[0].outcome in {Outcome.MIGRATED, Outcome.PREEMPTED}
    assert (second.candidate.cluster, second.resumed_from_step) == ("cloud", durable)
    eventually(lambda: run.services.ledger.moves(run.run)[0].state, lambda state: state is MoveState.DONE, seconds=120)
    assert run.attempts[1].first_step == durable + 1


@pytest.mark.slow
def test_a_run_whose_target_site_is_lost_while_it_is_drained_goes_back_and_loses_nothing(
    sandbox: SandboxSettings, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(**ENDLESS))
    drained(run)
    drills.site_outage(sandbox, "cloud")
    second = eventually(lambda: run.attempts[-1], lambda a: a.number > 1 and a.first_step is not None, seconds=240)
    first = run.attempts[0]
    assert (first.outcome, second.candidate.cluster) == (Outcome.MIGRATED, "onprem")
    assert first.last_step == first.committed_step == second.resumed_from_step
    assert second.first_step == int(str(first.committed_step)) + 1
    (move,) = run.services.ledger.moves(run.run)
    assert move.state is MoveState.FAILED and move.problem
    assert [r.attempt for r in run.services.ledger.reservations()] == [second.label]
