"""Sharded checkpoints by several real processes, where PyTorch is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.checkpoints.progress import read_progress
from spillway.checkpoints.sweep import sweep
from spillway.model import ExitCode
from spillway.testing.polling import eventually
from spillway.testing.training import TrainingSite

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

DEADLINE_SECONDS = 180


@contextmanager
def gang(
    site: TrainingSite,
    folder: Path,
    *,
    ranks: int = 2,
    attempt: int = 1,
    steps: int = 4,
    flags: Sequence[Sequence[str]] = (),
) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of one attempt, one a rank; ``flags`` are further arguments by rank."""
    folder.mkdir(exist_ok=True)
    site.checkpoints.fence(attempt)
    base = site.environment(
        attempt=attempt, SPILLWAY_STEPS=str(steps), SPILLWAY_CHECKPOINT_EVERY="2", WORLD_SIZE=str(ranks)
    )
    with ExitStack() as stack:
        processes = []
        for rank in range(ranks):
            further = flags[rank] if rank < len(flags) else ()
            meeting = [str(folder / f"meeting-{attempt}"), str(folder / f"scratch-{attempt}-{rank}")]
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "spillway.testing.sharded", *meeting, *further],
                    env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            processes.append(process)
        yield processes


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, last line and errors of each, in the order of ranks."""
    found = [process.communicate(timeout=DEADLINE_SECONDS) for process in processes]
    codes = [process.returncode for process in processes]
    return [(code, (out.splitlines() or [""])[-1], err) for code, (out, err) in zip(codes, found, strict=True)]


def trained(site: TrainingSite, folder: Path, **gang_of: Any) -> dict[str, Any]:
    """What a gang that ends well holds; each of its ranks the same."""
    with gang(site, folder, **gang_of) as processes:
        ends = ended(processes)
    assert [code for code, _, _ in ends] == [0] * len(ends), ends
    (held,) = {line for _, line, _ in ends}
    found: dict[str, Any] = json.loads(held)
    return found


def committed(site: TrainingSite) -> list[tuple[int, int]]:
    """(attempt, step) of every committed step."""
    head = site.checkpoints.head()
    return [] if head is None else [entry.age_order for entry in head.committed]


def parts(site: TrainingSite) -> set[str]:
    return {info.key for info in site.bucket.list(f"{site.run}/parts/")}


def test_every_rank_sends_its_own_shards_and_only_those_that_have_changed(
    any_site: TrainingSite, tmp_path: Path
) -> None:
    held = trained(any_site, tmp_path)
    assert committed(any_site) == [(1, 2), (1, 4)]
    first, second = any_site.checkpoints.manifests()
    assert (first.world_size, dict(second.data_cursor)) == (2, {"next": 5})
    of_ranks = [
        {part.name.split("_")[2] for part in step.parts if part.name != ".metadata"} for step in (first, second)
    ]
    assert of_ranks == [{"0", "1"}] * 2
    same = {part.sha256 for part in first.parts} & {part.sha256 for part in second.parts}
    assert len(same) == 2, "the frozen shard of each rank"
    assert held["trained"] == sum(range(48)) + 48 * (1 + 2 + 3 + 4)
    assert held["scratch"] == 0
    assert [step for step, _ in any_site.losses()] == [1, 2, 3, 4]
    assert list(any_site.bucket.list(f"{any_site.run}/claims/")) == []


def test_another_number_of_ranks_goes_on_with_the_same_state(site: TrainingSite, tmp_path: Path) -> None:
    undisturbed = trained(replace(site, run="undisturbed"), tmp_path)
    trained(site, tmp_path / "first", steps=2)
    assert trained(site, tmp_path / "second", attempt=2, ranks=3) == undisturbed
    assert committed(site) == [(1, 2), (2, 4)]
    assert [manifest.world_size for manifest in site.checkpoints.manifests()] == [2, 3]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # it is: one process reads
def test_what_is_committed_is_a_folder_that_pytorch_itself_can_read(site: TrainingSite, tmp_path: Path) -> None:
    held = trained(site, tmp_path)
    site.checkpoints.restore(site.checkpoints.manifests()[-1], tmp_path / "restored")
    state = {"trained": torch.zeros(12, 4), "frozen": torch.zeros(12, 4)}
    dcp.load(state, checkpoint_id=tmp_path / "restored", no_dist=True)
    assert {name: tensor.sum().item() for name, tensor in state.items()} == {name: held[name] for name in state}


def test_a_save_beside_training_is_committed_as_the_step_that_it_is_of(site: TrainingSite, tmp_path: Path) -> None:
    slowly = ["--beside", "--sends-for", "1"]
    trained(site, tmp_path, flags=[slowly] * 2)
    assert committed(site) == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert [step for step, _ in site.losses()] == [1, 2, 3, 4]


def test_a_save_takes_as_long_as_the_rank_that_sends_for_longest(site: TrainingSite, tmp_path: Path) -> None:
    trained(site, tmp_path, steps=2, flags=[[], ["--sends-for", "2"]])
    progress = read_progress(site.bucket, site.run, 1)
    assert progress is not None
    assert progress.slowest_commit_seconds is not None
    assert progress.slowest_commit_seconds > 2


def test_a_step_of_which_a_rank_has_died_before_its_parts_were_there_never_exists(
    site: TrainingSite, tmp_path: Path
) -> None:
    with gang(site, tmp_path, flags=[[], ["--dies-at", "4"]]) as processes:
        (first, _, _), (second, _, _) = ended(processes)
    assert (first, second) == (1, 9)
    assert committed(site) == [(1, 2)]
    left = parts(site)

    held = trained(site, tmp_path / "again", attempt=2)
    assert held["next"] == 5
    assert committed(site) == [(1, 2), (2, 4)]
    used = {part.sha256 for manifest in site.checkpoints.manifests() for part in manifest.parts}
    later = datetime.now(UTC) + timedelta(hours=1)
    sweep(site.checkpoints, now=later, grace=timedelta(0))
    assert {key.rpartition("/")[2] for key in parts(site)} == used
    assert left


def test_what_a_gang_of_an_older_attempt_still_sends_joins_no_step(site: TrainingSite, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    held = ["--held-at", "4", "--held-by", str(go_on)]
    with gang(site, tmp_path, flags=[held, held]) as zombies:
        eventually(lambda: committed(site) == [(1, 2)], seconds=DEADLINE_SECONDS)
        trained(site, tmp_path / "second", attempt=2)
        before = (committed(site), parts(site))
        go_on.touch()
        ends = ended(zombies)
    assert [code for code, _, _ in ends] == [ExitCode.FENCED] * 2, ends
    assert all("attempt 1 is fenced" in errors for _, _, errors in ends)
    assert (committed(site), parts(site)) == before == ([(1, 2), (2, 4)], before[1])
