"""Whoever waits for a place looks again and again, without reserving anything."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.errors import Unreachable
from spillway.model import (
    AttemptState,
    Billing,
    Destination,
    JobSpec,
    MoveEstimate,
    Outcome,
    PlacementDecision,
    Snapshot,
)
from spillway.runs import looking
from spillway.runs.admission import decide, snapshot
from spillway.runs.looking import Lookout
from spillway.runs.services import Services
from spillway.testing.carried_run import Carried

HOUR = timedelta(hours=1)
MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def test_a_look_comes_to_what_reserving_would(open_run: Carry, make_job: MakeJob) -> None:
    run, lookout = open_run(make_job(gpu_model="H100", gpus_per_node=1)), Lookout()
    seen = snapshot(run.services, run.job)
    [cloud] = [state for state in seen.clusters if state.cluster.name == "cloud"]
    for _ in range(sum(node.allocatable_gpus for node in cloud.nodes)):
        found = lookout.look(run.services, run.job)
        assert found.chosen is not None
        assert found.chosen.cluster == "cloud"
        open_run(run.job).place()
    for job, possible in ((run.job, True), (replace(run.job, gpu_model="V100"), False)):
        found = lookout.look(run.services, job)
        assert (found.chosen, found.possible) == (None, possible)
        assert replace(found, taken_at=seen.taken_at) == replace(decide(run.services, job, seen), verdicts=())


def test_what_a_move_holds_for_a_run_is_free_for_that_run_alone(
    services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    [first, _] = next(state.nodes for state in snapshot(services).clusters if state.cluster.name == "cloud")
    job = make_job(gpu_model="H100", gpus_per_node=first.allocatable_gpus, spot_ok=True)
    moved = open_run(job)
    attempt = moved.place()
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED, AttemptState.RUNNING):
        attempt = services.ledger.advance(attempt, state)
    target = replace(attempt.candidate, billing=Billing.SPOT)
    services.ledger.order_move(
        attempt,
        destination=Destination(billing=target.billing),
        reason="maintenance",
        origin={},
        estimate=MoveEstimate(beforehand={}, pause={}),
        now=services.clock(),
        lease=HOUR,
        snapshot=snapshot(services, job),
        policy=services.configuration.policy,
        decide=lambda seen: PlacementDecision(
            job=job.name, taken_at=seen.taken_at, chosen=target, possible=True, verdicts=()
        ),
    )
    services.ledger.settle(attempt, Outcome.MIGRATED, "drained", services.clock())
    other = replace(job, department="production")
    open_run(other).place()
    lookout = Lookout()
    assert lookout.look(services, other, max_age=HOUR).chosen is None
    assert lookout.look(services, job, run=moved.run, max_age=HOUR).chosen is not None


def test_all_who_wait_look_at_facts_that_one_of_them_has_read(
    services: Services, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Snapshot] = []

    def noted(asked: Services) -> Snapshot:
        read.append(snapshot(asked))
        return read[-1]

    monkeypatch.setattr(looking, "snapshot", noted)
    lookout = Lookout()
    jobs = [make_job(gpus_per_node=1), make_job(gpus_per_node=1, gpu_model="V100")] * 4
    with ThreadPoolExecutor(len(jobs)) as threads:
        found = list(threads.map(lambda job: lookout.look(services, job, max_age=HOUR), jobs))
    assert [decision.possible for decision in found] == [True, False] * 4
    assert len(read) == 1
    policy = replace(services.configuration.policy, weights={"cost": Decimal(1)})
    other = replace(services, configuration=replace(services.configuration, policy=policy))
    lookout.look(other, jobs[0], max_age=HOUR)
    assert len(read) == 2, "what is declared has changed"
    lookout.look(other, jobs[0])
    assert len(read) == 3, "the facts are too old"


def test_facts_that_cannot_be_read_are_asked_for_once_for_all_who_wait_and_anew_by_the_next_look(
    services: Services, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, lookout, job = 0, Lookout(), make_job(gpus_per_node=1)

    def away(_asked: Services) -> Snapshot:
        nonlocal asked
        asked += 1
        raise Unreachable("ledger", "no route")

    monkeypatch.setattr(looking, "snapshot", away)

    def told(_number: int) -> bool:
        with pytest.raises(Unreachable, match="no route"):
            lookout.look(services, job, max_age=HOUR)
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(told, range(8)))
    assert asked == 1
    monkeypatch.setattr(looking, "snapshot", snapshot)
    assert lookout.look(services, job).possible
