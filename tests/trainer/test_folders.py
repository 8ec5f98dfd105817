"""Checkpoints that a framework writes as a folder of files."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.errors import BadData, CorruptCheckpoint
from spillway.testing.training import TrainingSite
from spillway.trainer.contract import read_contract
from spillway.trainer.folders import folder_checkpoint, restore_folder
from spillway.trainer.session import Session
from spillway.trainer.stop import StopSignal

FILES = {"metadata": b"{}", "0/model.bin": b"weights", "0/optimizer.bin": b"", "1/model.bin": b"weights"}


def session_of(site: TrainingSite, attempt: int) -> Session:
    site.checkpoints.fence(attempt)
    contract = read_contract(site.environment(attempt=attempt))
    session = Session(contract, StopSignal(), data=site.data, checkpoints=site.checkpoints)
    session.begin()
    return session


def save(folder: Path) -> Path:
    for name, body in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def commit(session: Session, folder: Path, *, world_size: int = 2) -> None:
    session.report(1, 0.5)
    session.commit(folder_checkpoint(folder, data_cursor={"next": 2}, world_size=world_size), last=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_back_as_it_was(any_site: TrainingSite, tmp_path: Path) -> None:
    commit(session_of(any_site, 1), save(tmp_path / "saved"))
    restore_folder(session_of(any_site, 2), tmp_path / "restored", world_size=2)
    assert contents(tmp_path / "restored") == FILES


def test_a_checkpoint_of_another_number_of_ranks_is_refused_where_that_matters(
    site: TrainingSite, tmp_path: Path
) -> None:
    commit(session_of(site, 1), save(tmp_path / "saved"))
    resumed = session_of(site, 2)
    with pytest.raises(CorruptCheckpoint, match="it was saved by 2 ranks, this attempt has 4"):
        restore_folder(resumed, tmp_path / "restored", world_size=4)
    assert not (tmp_path / "restored").exists()
    restore_folder(resumed, tmp_path / "restored")
    assert contents(tmp_path / "restored") == FILES


def test_an_attempt_that_begins_has_nothing_to_restore(site: TrainingSite, tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="begins with step 1"):
        restore_folder(session_of(site, 1), tmp_path / "restored")


def test_an_empty_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="there is none; save it before it is committed"):
        folder_checkpoint(tmp_path, data_cursor={})


def test_a_link_in_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    save(tmp_path / "saved")
    (tmp_path / "saved" / "latest").symlink_to("0")
    with pytest.raises(BadData, match="latest: expected a plain file, it is a link"):
        folder_checkpoint(tmp_path / "saved", data_cursor={})
