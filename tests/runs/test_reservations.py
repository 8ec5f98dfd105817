"""Promises: never more than there is, kept while somebody may stand by them, freed when nobody can."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.errors import ResidencyRefused
from spillway.ledger import TransferOutcome
from spillway.model import AttemptState, JobSpec, Outcome, PodPhase, Tier
from spillway.runs.admission import admit
from spillway.runs.cancelling import cancel_run
from spillway.runs.engine import Finished, Waiting, Watching
from spillway.runs.explaining import newest
from spillway.runs.holding import holding
from spillway.runs.moving_datasets import copy_dataset
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation
from spillway.testing.sweeps import an_hour_later

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def test_ten_runs_at_once_never_have_more_pods_than_there_are_gpus(start_run: Carry, make_job: MakeJob) -> None:
    job = make_job(steps=3, every=3, tier=Tier.CORE)
    runs = [start_run(job) for _ in range(10)]
    client = runs[0].services.site("onprem").client
    installation = runs[0].services.ledger.installation()
    most = 0
    while any(run.thread is not None and run.thread.is_alive() for run in runs):
        pods = client.owned(installation)
        most = max(most, sum(pod.phase in {PodPhase.PENDING, PodPhase.RUNNING} for pod in pods))
        assert most <= 4, pods
        time.sleep(0.2)
    outcomes = [(attempt.outcome, attempt.candidate.cluster) for run in runs for attempt in (run.result(),)]
    assert outcomes == [(Outcome.SUCCEEDED, "onprem")] * 10
    assert most > 1
    assert runs[0].services.ledger.reservations() == ()


def test_a_small_run_does_not_keep_a_big_one_that_waits_from_its_place(open_run: Carry, make_job: MakeJob) -> None:
    """The on-premises site has four GPUs, and only it may have core data."""
    here = replace(make_job(tier=Tier.CORE), longest_duration=timedelta(hours=1))
    first, big = open_run(replace(here, department="production")), open_run(replace(here, gpus_per_node=2, nodes=2))
    first.place()
    assert isinstance(big.advance(), Waiting)
    short, endless = open_run(here), open_run(replace(here, longest_duration=None))
    assert isinstance(endless.advance(), Waiting)
    table = newest(endless.services.ledger, endless.run).decision
    told = {r.rule: r.reason for verdict in table.verdicts for r in verdict.rejections if r.waits}
    assert f"run {big.run} (research, 2 x 2 GPUs), which waits since" in told["queue"]
    assert short.advance() is not None
    cancel_run(big.services, big.run, "nobody needs it", big.said.append)
    assert isinstance(endless.advance(), Watching)


def test_a_reservation_whose_owner_died_is_freed_once_its_cluster_is_seen_without_its_pod(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run, other = open_run(make_job()), open_run(make_job())
    run.place()
    later = an_hour_later(run.services)
    with installation.taken("onprem-kube-api"):
        admit(later, other.run, other.job)
        assert run.attempts[0].state is AttemptState.RESERVED
    admit(later, other.run, other.job)
    assert (run.attempts[0].state, run.attempts[0].outcome) == (AttemptState.SETTLED, Outcome.PREEMPTED)
    assert "nobody renewed it" in str(run.attempts[0].reason)
    assert [reservation.attempt for reservation in later.ledger.reservations()] == [other.attempts[0].label]
    step = run.advance()
    assert isinstance(step, Watching) and step.attempt.number == 2


def test_a_pod_that_runs_keeps_its_reservation_whoever_died(open_run: Carry, make_job: MakeJob) -> None:
    run, other = open_run(make_job(steps=100_000, every=50_000, pace=0.1)), open_run(make_job())
    run.advance()
    admit(an_hour_later(run.services), other.run, other.job)
    assert run.attempts[0].state is AttemptState.LAUNCHED


def test_a_pod_that_ended_while_nobody_watched_decides_how_its_attempt_ended(
    open_run: Carry, make_job: MakeJob
) -> None:
    run, other = open_run(make_job(steps=2)), open_run(make_job())
    step = run.advance()
    assert isinstance(step, Watching)
    client = run.services.site("onprem").client
    eventually(lambda: client.state(step.attempt.label).phase is PodPhase.SUCCEEDED, seconds=120)
    admit(an_hour_later(run.services), other.run, other.job)
    (only,) = run.attempts
    assert (only.outcome, only.last_step) == (Outcome.SUCCEEDED, 2)
    assert run.advance() == Finished(attempt=only)


def test_a_long_transfer_keeps_its_reservation(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    short = replace(run.services.configuration.runs, lease=timedelta(seconds=0.3))
    services = replace(run.services, configuration=replace(run.services.configuration, runs=short))
    run.services = services
    attempt = run.place()
    with holding(services, attempt):
        eventually(lambda: run.attempts[0].lease_expires_at > attempt.lease_expires_at)
        held = run.attempts[0].lease_expires_at
        eventually(lambda: run.attempts[0].lease_expires_at > held)


def test_a_core_job_waits_for_its_site_and_nothing_of_it_is_stored_elsewhere(
    installation: Installation, start_run: Carry, make_job: MakeJob
) -> None:
    services = installation.services()
    core = replace(services.configuration.datasets["digits"], tier=Tier.CORE)
    run = start_run(make_job(steps=100_000, every=2, pace=0.2, tier=Tier.CORE))
    first = run.running(1, committed=1)
    with installation.taken(f"{first.node}-agent", "onprem-kube-api"):
        eventually(lambda: run.attempts[0].outcome is Outcome.PREEMPTED, seconds=120)
        assert isinstance(run.advance(), Waiting)
        with pytest.raises(ResidencyRefused, match="'core' and may not be stored at 'cloud'"):
            copy_dataset(services, core, "cloud", run=run.run)
        assert run.checkpoints("cloud").head() is None
    (refusal,) = [line for line in services.ledger.transfers(run.run) if line.destination == "cloud"]
    assert (refusal.outcome, refusal.tier, refusal.size_bytes) == (TransferOutcome.REFUSED, Tier.CORE, 0)
