"""``checkpoints restore`` and ``prune``: what is written to a disk, and what is deleted at the sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spillway.checkpoints.layout import part_key, sha256_of
from spillway.checkpoints.store import CheckpointStore
from spillway.runs.services import Services
from spillway.testing.command_line import RunWithSteps, Spillway

STEPS = (2, 4, 6)


@pytest.fixture
def run(services: Services, run_with_steps: RunWithSteps) -> str:
    return run_with_steps(*STEPS)


def committed(services: Services, run: str) -> list[int]:
    head = CheckpointStore(services.site("onprem").checkpoints, run).head()
    assert head is not None
    return [entry.step for entry in head.committed]


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_newest_step_is_restored_as_files(spillway: Spillway, run: str, tmp_path: Path) -> None:
    folder = tmp_path / "restored"
    answer = spillway("checkpoints", "restore", run, str(folder))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        f"run {run}: wrote step 6 of attempt 1 from onprem to {folder}: 1 file, 20 bytes; 0 there already\n"
    )
    assert files(folder) == {"weights": "weights after step 6"}
    again = json.loads(spillway("checkpoints", "restore", run, str(folder), "--json").out)
    assert (again["files_written"], again["files_kept"]) == (0, 1)


def test_a_dry_run_of_a_restore_writes_nothing(spillway: Spillway, run: str, tmp_path: Path) -> None:
    answer = spillway("checkpoints", "restore", run, str(tmp_path / "restored"), "--dry-run")
    assert "would write step 6" in answer.out
    assert not (tmp_path / "restored").exists()


def test_a_damaged_newest_step_falls_back_with_the_reason(
    spillway: Spillway, services: Services, run: str, tmp_path: Path
) -> None:
    bucket = services.site("onprem").checkpoints
    newest = CheckpointStore(bucket, run).manifests()[-1]
    bucket.put(part_key(run, newest.parts[0].sha256), b"not what was written", size_bytes=20)
    answer = spillway("checkpoints", "restore", run, str(tmp_path / "restored"))
    assert answer.code == 0
    assert "wrote step 4" in answer.out
    assert "spillway: not used: onprem: step 6 of attempt 1: part 'weights'" in answer.err
    assert files(tmp_path / "restored") == {"weights": "weights after step 4"}


def test_a_step_that_is_not_committed_is_refused_with_those_that_are(
    spillway: Spillway, run: str, tmp_path: Path
) -> None:
    answer = spillway("checkpoints", "restore", run, str(tmp_path / "restored"), "--step", "8")
    assert (answer.code, answer.err) == (
        1,
        f"spillway: step '8' is not in run '{run}'; committed steps: 2, 4, 6\n",
    )
    assert "wrote step 2" in spillway("checkpoints", "restore", run, str(tmp_path / "restored"), "--step", "2").out


def test_a_folder_with_other_files_is_left_alone(spillway: Spillway, run: str, tmp_path: Path) -> None:
    for name in ("thesis.tex", "thesis.half"):
        folder = tmp_path / f"with {name}"
        folder.mkdir()
        (folder / name).write_text("years of work")
        answer = spillway("checkpoints", "restore", run, str(folder))
        assert answer.code == 1
        assert f"expected an empty folder or an earlier restore of step 6, it holds '{name}'" in answer.err
        assert files(folder) == {name: "years of work"}


def test_a_folder_in_which_a_restore_was_killed_is_gone_on_with(spillway: Spillway, run: str, tmp_path: Path) -> None:
    folder = tmp_path / "restored"
    draft = folder / ".spillway-half" / sha256_of(b"weights")
    draft.parent.mkdir(parents=True)
    draft.write_text("weights af")
    assert "wrote step 6" in spillway("checkpoints", "restore", run, str(folder)).out
    assert [path.name for path in folder.iterdir()] == ["weights"]


def test_pruning_without_rules_keeps_every_step(spillway: Spillway, services: Services, run: str) -> None:
    answer = spillway("checkpoints", "prune", run)
    assert answer.code == 0
    assert "declares no checkpoints.retention: every committed step is kept" in answer.err
    assert "onprem: nothing to delete; steps that stay: 2, 4, 6" in answer.out
    assert committed(services, run) == [2, 4, 6]


def test_pruning_to_the_last_steps_takes_the_others_out_of_use(
    spillway: Spillway, services: Services, run_with_steps: RunWithSteps
) -> None:
    run = run_with_steps(*STEPS, hours_ago=2)
    planned = json.loads(spillway("checkpoints", "prune", run, "--last", "1", "--dry-run", "--json").out)
    assert [entry["step"] for entry in planned["onprem"]["pruned"]] == [2, 4]
    assert committed(services, run) == [2, 4, 6]
    answer = spillway("checkpoints", "prune", run, "--last", "1")
    assert (answer.code, answer.err) == (0, "")
    assert "onprem: steps 2, 4 taken out of use; steps that stay: 6" in answer.out
    assert committed(services, run) == [6]


def test_a_prune_that_spares_young_steps_says_so(spillway: Spillway, services: Services, run: str) -> None:
    answer = spillway("checkpoints", "prune", run, "--last", "1")
    assert "nothing to delete; steps that stay: 2, 4, 6; those younger than 1 h do in any case" in answer.out
    assert committed(services, run) == [2, 4, 6]


def test_what_was_pruned_is_not_lost(spillway: Spillway, services: Services, run_with_steps: RunWithSteps) -> None:
    run = run_with_steps(*STEPS, hours_ago=2)
    services.ledger.amend(services.ledger.attempt(run, 1), committed_step=4)
    spillway("checkpoints", "prune", run, "--last", "1")
    answer = spillway("checkpoints", "ls", run)
    assert (answer.code, answer.err) == (0, "")


def test_a_manifest_that_cannot_be_read_stops_the_prune_of_its_site(
    spillway: Spillway, services: Services, run_with_steps: RunWithSteps
) -> None:
    run = run_with_steps(*STEPS, hours_ago=2)
    bucket = services.site("onprem").checkpoints
    manifest = next(info.key for info in bucket.list(f"{run}/manifests/") if "000002-" in info.key)
    bucket.delete([manifest])
    answer = spillway("checkpoints", "prune", run, "--last", "1")
    assert answer.code == 1
    assert "onprem: nothing was deleted: " in answer.err and "its manifest is missing" in answer.err
    assert committed(services, run) == [2, 4, 6]
