"""``runs migrate``: what a move would take, what refuses it, and one that is made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from spillway.config import load_job
from spillway.model import AttemptState, MoveState, Outcome
from spillway.runs.services import Services
from spillway.testing.carried_run import Carried
from spillway.testing.command_line import Spillway, StartSpillway
from spillway.testing.polling import eventually
from spillway.testing.standing_run import standing

ENDLESS = {"SPILLWAY_STEPS": "10000", "SPILLWAY_CHECKPOINT_EVERY": "5", "SPILLWAY_STEP_SECONDS": "0.1"}


@pytest.fixture
def run(services: Services, jobs: Path) -> str:
    """The name of a run that trains on premises, as far as the ledger knows."""
    job = load_job(jobs / "quick.yaml", services.configuration.datasets)
    services.ledger.open_run(job.name, job, {}, services.clock())
    standing(Carried(services=services, run=job.name, job=job))
    return job.name


def test_a_dry_run_tells_terms_and_advice_to_people_and_programs(
    spillway: Spillway, services: Services, run: str
) -> None:
    told = spillway("runs", "migrate", run, "cloud", "--dry-run")
    assert told.code == 0, told.err
    assert f"would move {run} from onprem/gpu/owned to cloud/gpu/on-demand" in told.out
    assert "flush unknown" in told.out and "advice: " in told.out
    found = json.loads(spillway("runs", "migrate", run, "--dry-run", "--json").out)
    assert (found["run"], found["from"]["cluster"], found["to"]["cluster"]) == (run, "onprem", "cloud")
    assert found["estimate"]["pause"]["flush"] is None and "flush" in found["estimate"]["unknown"]
    assert found["estimate"]["beforehand"]["dataset"] is not None
    assert found["advice"]["advice"] in {"move", "stay", "wait for the next checkpoint"}
    assert services.ledger.moves(run) == ()


def test_a_run_that_is_not_moved_exits_1_with_one_message(spillway: Spillway, run: str) -> None:
    refused = spillway("runs", "migrate", run, "onprem")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"spillway: run '{run}' is not moved: it is at onprem/gpu/owned already")
    unknown = spillway("runs", "migrate", "nobody", "--dry-run")
    assert unknown.code == 1 and "run 'nobody' is not in the ledger" in unknown.err


@pytest.mark.slow
def test_a_run_is_moved_shown_and_explained(
    spillway: Spillway, start_spillway: StartSpillway, services: Services, change_job: Callable[..., None]
) -> None:
    change_job(environment=ENDLESS, grace="20s")
    start_spillway("runs", "start", "quick", "--poll-seconds", "0.2")
    (record,) = eventually(services.ledger.runs, seconds=60)
    eventually(
        lambda: services.ledger.open_attempt(record.run),
        lambda attempt: attempt is not None and attempt.state is AttemptState.RUNNING,
        seconds=120,
    )
    moved = spillway(
        "runs", "migrate", record.run, "cloud", "--reason", "maintenance", "--json", "--poll-seconds", "0.2"
    )
    assert moved.code == 0, moved.err
    assert json.loads(moved.out)["state"] == MoveState.DONE
    assert services.ledger.attempts(record.run)[0].outcome is Outcome.MIGRATED
    shown = spillway("runs", "show", record.run).out
    assert "move 1: attempt 1 -> cloud/gpu/on-demand (maintenance): done: step " in shown
    explained = spillway("explain", "--run", record.run)
    assert explained.code == 0
    assert "order to move to cloud\n" in explained.out
    assert "destination: is where the run is" in explained.out
    spillway("runs", "cancel", record.run)
