"""A site whose object store goes away while its cluster lives on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spillway.model import JobSpec, Outcome
from spillway.runs.moving_datasets import copy_dataset
from spillway.runs.replicating import upload_checkpoints
from spillway.testing.carried_run import Carried
from spillway.testing.sandbox_server import Installation


@pytest.mark.slow
def test_a_run_whose_store_stays_away_goes_on_elsewhere_and_has_not_failed(
    installation: Installation, start_run: Callable[[JobSpec], Carried], make_job: Callable[..., JobSpec]
) -> None:
    job = make_job(steps=100_000, every=2, pace=0.1)
    impatient = {**job.environment, "SPILLWAY_STORE_PATIENCE_SECONDS": "1"}
    run = start_run(replace(job, environment=impatient))
    copy_dataset(run.services, run.services.dataset("digits"), "cloud")
    run.running(1, committed=2)
    assert upload_checkpoints(run.services, run.said.append) == ()
    replicated = run.committed("cloud")[-1]
    with installation.taken("onprem-store"):
        second = run.running(2)
    one = run.attempts[0]
    assert (second.candidate.cluster, second.resumed_from_step) == ("cloud", replicated)
    assert one.outcome is Outcome.PREEMPTED
    assert "its site's store stayed unreachable (exit code 74)" in str(one.reason)
