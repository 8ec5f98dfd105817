"""Runs that lose what they run on, and go on elsewhere with exactly the next step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.errors.counts import counted
from spillway.ledger import TransferKind, TransferOutcome
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PodPhase, Tier, VerdictKind
from spillway.runs.engine import Watching, conclude
from spillway.runs.evidence import evidence
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.moving_images import copy_image
from spillway.runs.replicating import upload_checkpoints
from spillway.runs.watching import Watch
from spillway.sandbox import drills
from spillway.sandbox.demo.reference import reference_loss
from spillway.sandbox.settings import SandboxSettings
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]

ENDLESS: dict[str, Any] = {"steps": 100_000, "every": 50_000, "pace": 0.1}
UNHURRIED = timedelta(seconds=60)
"""A grace that also a busy machine has time enough in."""


def told(attempts: tuple[Attempt, ...]) -> list[tuple[Any, ...]]:
    return [
        (a.number, a.candidate.cluster, a.outcome, a.resumed_from_step, a.first_step, a.last_step) for a in attempts
    ]


def copy_to_cloud(run: Carried) -> None:
    """What the run needs of its home, so that its home may be lost."""
    services = run.services
    copy_image(services, "train", run.job.image.partition(":")[2], "cloud", tier=Tier.PUBLIC)
    copy_dataset(services, services.configuration.datasets["digits"], "cloud")


def test_a_run_that_nothing_disturbs_trains_to_the_end_on_premises(start_run: Carry, make_job: MakeJob) -> None:
    run = start_run(make_job(steps=5, every=2))
    assert run.result().outcome is Outcome.SUCCEEDED, run.story
    assert told(run.attempts) == [(1, "onprem", Outcome.SUCCEEDED, None, 1, 5)]
    assert run.committed("onprem") == (2, 4, 5)
    assert [step for step, _ in run.losses("onprem")] == [1, 2, 3, 4, 5]
    (cost,) = run.services.ledger.costs(run.run)
    assert (cost.attempt, cost.cluster, cost.gpus) == (run.attempts[0].label, "onprem", 1)
    assert (cost.started_at, cost.ended_at) == (run.attempts[0].started_at, run.attempts[0].ended_at)
    assert run.services.ledger.reservations() == ()


def test_a_run_whose_node_is_lost_goes_on_in_the_cloud_at_exactly_the_next_step(
    sandbox: SandboxSettings, start_run: Carry, make_job: MakeJob, tmp_path: Path
) -> None:
    run = start_run(make_job(steps=40, every=3, pace=0.2))
    first = run.running(1, committed=2)
    drills.node_loss(sandbox, str(first.node))
    durable = run.committed("onprem")[-1]
    assert run.result().outcome is Outcome.SUCCEEDED, run.story
    one, two = run.attempts
    assert (one.outcome, two.candidate.cluster, two.outcome) == (Outcome.PREEMPTED, "cloud", Outcome.SUCCEEDED)
    assert (two.resumed_from_step, two.first_step, two.last_step) == (durable, durable + 1, 40)
    assert one.image_digest == two.image_digest
    assert run.losses("cloud") == reference_loss(run.job, tmp_path)
    costs = run.services.ledger.costs(run.run)
    assert [(c.attempt, c.cluster, c.pod_uid) for c in costs] == [
        (one.label, "onprem", one.pod_uid),
        (two.label, "cloud", two.pod_uid),
    ]
    assert [step["step"] for step in evidence(run.services, run.run)["loss"]] == list(range(1, 41))


def test_a_reclaimed_node_gives_notice_and_the_next_attempt_loses_nothing(
    sandbox: SandboxSettings, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(**ENDLESS, grace=UNHURRIED))
    first = run.running(1)
    drills.spot_reclaim(sandbox, str(first.node), notice_seconds=1)
    second = run.running(2)
    one = run.attempts[0]
    assert one.outcome is Outcome.PREEMPTED
    assert one.last_step == one.committed_step == second.resumed_from_step
    assert eventually(lambda: run.attempts[1].first_step) == one.last_step + 1  # type: ignore[operator]
    assert "trained up to step" not in run.story


def test_an_evicted_pod_is_followed_elsewhere(sandbox: SandboxSettings, start_run: Carry, make_job: MakeJob) -> None:
    run = start_run(make_job(**ENDLESS, grace=UNHURRIED))
    first = run.running(1)
    drills.evict(sandbox, str(first.node), first.label)
    second = run.running(2)
    one = run.attempts[0]
    assert (one.outcome, second.candidate.cluster) == (Outcome.PREEMPTED, "cloud")
    assert second.resumed_from_step == one.committed_step


def test_the_loss_of_the_whole_site_costs_only_the_steps_since_the_last_replication(
    sandbox: SandboxSettings, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(**ENDLESS | {"every": 2}))
    copy_to_cloud(run)
    run.running(1, committed=2)
    assert upload_checkpoints(run.services, run.said.append) == ()
    replicated = run.committed("cloud")[-1]
    eventually(lambda: run.attempts[0].committed_step, lambda step: step is not None and step > replicated)
    drills.site_outage(sandbox, "onprem")
    second = run.running(2)
    one = run.attempts[0]
    assert (second.candidate.cluster, second.resumed_from_step) == ("cloud", replicated)
    assert eventually(lambda: run.attempts[1].first_step) == replicated + 1
    assert one.outcome is Outcome.PREEMPTED
    assert "has not answered" in str(one.reason)
    assert one.last_step is not None
    lost = counted(one.last_step - replicated, "step")
    told = f"lost: {lost}; trained up to step {one.last_step}, step {replicated} is committed at cloud"
    assert told in run.story
    uploaded, *broken = run.services.ledger.transfers(run.run, kind=TransferKind.CHECKPOINT)
    assert (uploaded.source, uploaded.destination, uploaded.outcome) == ("onprem", "cloud", TransferOutcome.COPIED)
    assert {line.outcome for line in broken} == {TransferOutcome.FAILED}, "the lost site was asked once more"


def test_a_node_lost_while_it_pulls_the_image_is_a_preemption_for_a_process_that_never_saw_the_pod(
    sandbox: SandboxSettings, installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    digest = f"sha256:{'0' * 64}"
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    run.services.ledger.advance(staged, AttemptState.LAUNCHED)
    installation.connection("onprem_registry", port=1)  # a pull that may pass, and does not
    run.services.forget("onprem")
    step = run.advance()
    assert isinstance(step, Watching)
    watch = Watch(services=run.services, attempt=step.attempt)
    eventually(lambda: watch.poll().summary, lambda said: "connection refused" in said, seconds=60)
    attempt = run.attempts[0]
    assert attempt.state is AttemptState.LAUNCHED
    drills.spot_reclaim(sandbox, str(attempt.node), notice_seconds=0)
    client = run.services.site("onprem").client
    eventually(lambda: client.state(attempt.label).phase is PodPhase.GONE, seconds=120)

    ended = Watch(services=installation.services(), attempt=attempt).poll().ended

    assert ended is not None
    assert conclude(run.services, run.run, 1, ended, run.said.append).outcome is Outcome.PREEMPTED
    assert f"its node {attempt.node} does not exist any more" in ended.reason


@pytest.mark.slow
def test_a_site_that_is_lost_before_the_launch_is_left_for_another(
    sandbox: SandboxSettings, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    services = run.services
    copy_to_cloud(run)
    assert run.place().candidate.cluster == "onprem"
    drills.site_outage(sandbox, "onprem")
    step = run.advance()
    assert isinstance(step, Watching)
    assert (step.attempt.number, step.attempt.candidate.cluster) == (2, "cloud")
    assert run.attempts[0].outcome is Outcome.PREEMPTED
    assert services.ledger.costs(run.run) == ()


@pytest.mark.slow
def test_a_pod_that_may_have_been_created_when_its_cluster_fell_silent_is_waited_for(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=3))
    digest = run.services.site("onprem").registry.resolve("train", run.job.image.partition(":")[2])
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    launched = run.services.ledger.advance(staged, AttemptState.LAUNCHED)
    with installation.taken("onprem-kube-api"):
        assert run.advance() == Watching(attempt=launched)
        assert run.start().result().candidate.cluster == "cloud", run.story
    first, second = run.attempts
    assert (first.outcome, first.pod_uid) == (Outcome.PREEMPTED, None)
    assert (second.outcome, second.first_step) == (Outcome.SUCCEEDED, 1)


def test_an_attempt_of_which_no_pod_was_ever_created_is_followed_by_another(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    digest = f"sha256:{'0' * 64}"
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=digest)
    launched = run.services.ledger.advance(staged, AttemptState.LAUNCHED)
    look = Watch(services=run.services, attempt=launched).poll()
    assert look.ended is not None and look.ended.kind is VerdictKind.PREEMPTED
    assert look.summary == f"pod '{launched.label}' was never seen at the cluster"
