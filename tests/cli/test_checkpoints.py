"""``checkpoints``: listed where they are, verified to the last byte, copied where they are missing."""

from __future__ import annotations

import json

import pytest

from spillway.checkpoints.layout import head_key, manifest_key, part_key
from spillway.checkpoints.store import CheckpointStore
from spillway.runs.services import Services
from spillway.stores.base import read_all
from spillway.testing.command_line import RunWithSteps, Spillway

STEPS = (2, 4)


@pytest.fixture
def run(run_with_steps: RunWithSteps) -> str:
    """A run whose first attempt has committed two steps on-prem; its name is the test's own."""
    return run_with_steps(*STEPS)


def damage_newest(services: Services, run: str) -> None:
    bucket = services.site("onprem").checkpoints
    newest = CheckpointStore(bucket, run).manifests()[-1]
    bucket.put(part_key(run, newest.parts[0].sha256), b"not what was written", size_bytes=20)


def test_the_committed_steps_are_listed_where_they_are(spillway: Spillway, run: str) -> None:
    answer = spillway("checkpoints", "list", run, "--json")
    assert answer.code == 0
    assert [(row["site"], row["step"], row["attempt"], row["bytes"]) for row in json.loads(answer.out)] == [
        ("onprem", step, 1, 20) for step in STEPS
    ]
    header, *lines = spillway("checkpoints", "list", run).out.splitlines()
    assert header.split()[:4] == ["SITE", "STEP", "ATTEMPT", "BYTES"]
    assert [line.split()[:4] for line in lines] == [["onprem", str(step), "1", "20"] for step in STEPS]


def test_intact_checkpoints_are_valid(spillway: Spillway, run: str) -> None:
    answer = spillway("checkpoints", "verify", run)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [f"onprem: step {step} of attempt 1: valid, 20 bytes" for step in STEPS]


def test_a_corrupt_newest_checkpoint_is_named_and_the_others_stay_valid(
    spillway: Spillway, services: Services, run: str
) -> None:
    damage_newest(services, run)
    answer = spillway("checkpoints", "verify", run)
    assert answer.code == 1
    assert "onprem: step 2 of attempt 1: valid" in answer.out
    assert "spillway: onprem: step 4 of attempt 1: part 'weights' has sha256" in answer.err
    assert "takes the newest valid step before it" in answer.err


@pytest.mark.parametrize("command", ["ls", "list", "verify"])
def test_steps_that_the_ledger_knows_and_the_site_has_lost_are_named(
    command: str, spillway: Spillway, services: Services, run: str
) -> None:
    services.ledger.amend(services.ledger.attempt(run, 1), committed_step=STEPS[-1])
    assert spillway("checkpoints", command, run).code == 0
    services.site("onprem").checkpoints.delete([head_key(run)])
    answer = spillway("checkpoints", command, run)
    assert answer.code == 1
    assert "onprem: the ledger knows step 4 of attempt 1 as committed, HEAD is missing" in answer.err


def test_a_dry_run_of_replication_copies_nothing(spillway: Spillway, services: Services, run: str) -> None:
    answer = spillway("checkpoints", "replicate", run, "--dry-run")
    assert (answer.code, answer.out) == (0, f"run {run}: would copy steps 2, 4 from onprem to cloud\n")
    assert CheckpointStore(services.site("cloud").checkpoints, run).head() is None


def test_replication_brings_every_step_once(spillway: Spillway, services: Services, run: str) -> None:
    first, second = spillway("checkpoints", "replicate", run), spillway("checkpoints", "replicate", run)
    assert (first.code, second.code) == (0, 0)
    assert f"checkpoints of {run}: 2 steps copied from onprem to cloud, newest 4" in first.out
    assert second.out == f"run {run}: every committed step of onprem is at cloud\n"
    source, copy = (CheckpointStore(services.site(site).checkpoints, run).manifests() for site in ("onprem", "cloud"))
    assert source == copy
    assert (
        spillway("checkpoints", "replicate", run, "--dry-run").out
        == f"run {run}: would copy nothing from onprem to cloud\n"
    )


def test_a_checkpoint_of_another_run_is_refused_by_name(spillway: Spillway, services: Services, run: str) -> None:
    bucket, other = services.site("onprem").checkpoints, f"{run[:-1]}2"
    for name in (head_key, lambda of: manifest_key(of, 2, 1)):
        body = read_all(bucket, name(run))
        bucket.put(name(other), body.replace(f"{run}/".encode(), f"{other}/".encode()), size_bytes=len(body))
    services.ledger.open_run(other, services.ledger.job(run), {"test": other}, services.clock())
    for verb in ("list", "verify"):
        answer = spillway("checkpoints", verb, other)
        assert answer.code == 1
        assert f"holds a checkpoint of run '{run}', expected run '{other}'; it was not used" in answer.err


def test_an_unknown_run_is_one_message(spillway: Spillway) -> None:
    for verb in ("list", "verify", "replicate"):
        answer = spillway("checkpoints", verb, "nothing")
        assert (answer.code, answer.err) == (1, "spillway: run 'nothing' is not in the ledger; it has no run yet\n")
