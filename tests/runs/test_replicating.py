"""Checkpoints follow a run to other sites while it trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from spillway.ledger import TransferKind
from spillway.model import JobSpec, Tier, VerdictKind
from spillway.runs.replicating import Copied, upload_checkpoints
from spillway.runs.settling import Ended, settle
from spillway.testing.carried_run import Carried
from spillway.testing.checkpoints import commit_step
from spillway.testing.sandbox_server import Installation

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


def commit(run: Carried, *steps: int) -> None:
    """Steps of the first attempt, on premises."""
    store = run.checkpoints("onprem")
    store.fence(1)
    for step in steps:
        commit_step(store, step)


def test_committed_steps_follow_an_open_run_to_the_other_site_once(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    assert run.place().candidate.cluster == "onprem"
    commit(run, 2, 4)
    assert upload_checkpoints(run.services, run.said.append) == ()
    assert run.committed("cloud") == (2, 4)
    commit(run, 6)
    assert upload_checkpoints(run.services, run.said.append) == ()
    assert upload_checkpoints(run.services, run.said.append) == ()
    assert run.committed("cloud") == (2, 4, 6)
    lines = [(line.kind, line.name, line.source, line.destination) for line in run.services.ledger.transfers(run.run)]
    assert lines == [(TransferKind.CHECKPOINT, f"{run.run} to step {newest}", "onprem", "cloud") for newest in (4, 6)]


def test_what_arrived_is_told_with_its_step_bytes_and_metrics(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    run.place()
    commit(run, 2, 4)
    told: list[Copied] = []
    for _ in range(2):
        upload_checkpoints(run.services, run.said.append, told.append)
    assert [copied for copied in told if copied.run == run.run] == [
        Copied(
            job=run.job.name,
            run=run.run,
            site="cloud",
            step=4,
            steps_copied=2,
            bytes_copied=2 * len("weights of step 2"),
            metrics={"loss": 0.25},
        )
    ]


def test_a_site_that_is_down_is_named_and_made_up_for_later(
    installation: Installation, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    run.place()
    commit(run, 2)
    with installation.taken("cloud-store"):
        (failed,) = upload_checkpoints(run.services, run.said.append)
        assert failed.startswith(f"{run.run}: onprem -> cloud: ")
        assert "unreachable" in failed
    assert upload_checkpoints(run.services, run.said.append) == ()
    assert run.committed("cloud") == (2,)


def test_checkpoints_of_a_core_job_stay_where_they_are(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job(tier=Tier.CORE))
    run.place()
    commit(run, 2)
    assert upload_checkpoints(run.services, run.said.append) == ()
    assert run.checkpoints("cloud").head() is None
    assert run.services.ledger.transfers(run.run) == ()


def test_a_run_that_ended_long_ago_is_not_looked_at(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    settle(run.services, run.place(), Ended(kind=VerdictKind.SUCCEEDED, reason="exit code 0"))
    commit(run, 2)
    later = replace(run.services, clock=lambda: datetime.now(UTC) + timedelta(days=2))
    assert upload_checkpoints(later, run.said.append) == ()
    assert run.committed("cloud") == ()
    assert upload_checkpoints(run.services, run.said.append) == ()
    assert run.committed("cloud") == (2,)
