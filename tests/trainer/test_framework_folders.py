"""What frameworks really write as a checkpoint: it comes back file by file, and the framework reads it again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spillway.errors import BadData
from spillway.model import CheckpointManifest
from spillway.testing.training import TrainingSite
from spillway.trainer.contract import read_contract
from spillway.trainer.folders import folder_checkpoint, restore_folder
from spillway.trainer.session import Session
from spillway.trainer.stop import StopSignal


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def session_of(site: TrainingSite, attempt: int) -> Session:
    site.checkpoints.fence(attempt)
    contract = read_contract(site.environment(attempt=attempt))
    session = Session(contract, StopSignal(), data=site.data, checkpoints=site.checkpoints)
    session.begin()
    return session


def commit(site: TrainingSite, *folders: Path) -> tuple[CheckpointManifest, ...]:
    """Commit the folders as steps 1, 2, ... of an attempt."""
    session = session_of(site, 1)
    for step, folder in enumerate(folders, start=1):
        session.report(step, 0.5)
        session.commit(folder_checkpoint(folder, data_cursor={"next": step + 1}), last=True)
    return site.checkpoints.manifests()


def restored(site: TrainingSite, folder: Path) -> Path:
    """The newest committed step as files, as the next attempt gets them."""
    restore_folder(session_of(site, 2), folder)
    return folder


def test_a_step_of_orbax_comes_back_so_that_orbax_reads_it(site: TrainingSite, tmp_path: Path) -> None:
    ocp: Any = pytest.importorskip("orbax.checkpoint")
    import numpy as np

    state = {"w": np.arange(8.0), "layers": {"b": np.ones(3)}}
    with ocp.CheckpointManager(tmp_path / "saved") as manager:
        manager.save(10, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
    saved = tmp_path / "saved" / "10"
    (manifest,) = commit(site, saved)
    assert any(part.name.count("/") >= 2 for part in manifest.parts), "Orbax nests its folders"

    assert contents(restored(site, tmp_path / "again" / "10")) == contents(saved)
    with ocp.CheckpointManager(tmp_path / "again") as manager:
        found = manager.restore(10, args=ocp.args.StandardRestore(state))
    assert found["w"].tolist() == state["w"].tolist()
    assert found["layers"]["b"].tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("default")  # those of Lightning about PyTorch are not ours
def test_a_checkpoint_of_lightning_comes_back_so_that_lightning_goes_on(site: TrainingSite, tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("lightning")
    torch: Any = pytest.importorskip("torch")

    class Line(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)

    def trainer(steps: int) -> Any:
        return lightning.Trainer(
            max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 4)), batch_size=4)
    first = trainer(2)
    first.fit(Line(), data)
    first.save_checkpoint(tmp_path / "saved" / "model.ckpt")
    commit(site, tmp_path / "saved")
    second = trainer(4)
    second.fit(Line(), data, ckpt_path=restored(site, tmp_path / "again") / "model.ckpt", weights_only=False)
    assert second.global_step == 4


def deepspeed_layout(folder: Path, tag: str, **changed: bytes) -> Path:
    """Files as DeepSpeed's ZeRO names them: a file a rank below the tag, the tag's name and a script beside it."""
    files = {
        f"{tag}/mp_rank_00_model_states.pt": b"model",
        **{f"{tag}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt": b"rank %d" % rank for rank in range(8)},
        "latest": tag.encode(),
        "zero_to_fp32.py": b"import torch\n",
    }
    for name, body in {**files, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def test_a_folder_laid_out_as_deepspeed_does_comes_back_as_it_was(site: TrainingSite, tmp_path: Path) -> None:
    saved = deepspeed_layout(tmp_path / "saved", "global_step10")
    (manifest,) = commit(site, saved)
    assert len(manifest.parts) == 11
    assert contents(restored(site, tmp_path / "again")) == contents(saved)


def test_of_two_saves_by_tag_only_what_is_new_is_sent_although_all_of_it_has_another_name(
    site: TrainingSite, tmp_path: Path
) -> None:
    first = deepspeed_layout(tmp_path / "first", "global_step10")
    second = deepspeed_layout(
        tmp_path / "second", "global_step20", **{"global_step20/mp_rank_00_model_states.pt": b"learned"}
    )
    before, after = commit(site, first, second)
    fresh = {part.sha256 for part in after.parts} - {part.sha256 for part in before.parts}
    assert {part.name for part in after.parts if part.sha256 in fresh} == {
        "latest",
        "global_step20/mp_rank_00_model_states.pt",
    }


def test_hundreds_of_small_and_empty_files_in_deep_folders_come_back(any_site: TrainingSite, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    for number in range(300):
        file = saved / f"ocdbt.process_{number % 3}" / "d" / f"{number // 50}" / f"{number:032x}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"" if number % 10 == 0 else b"%d" % number)
    commit(any_site, saved)
    assert contents(restored(any_site, tmp_path / "again")) == contents(saved)


@pytest.mark.parametrize(
    "unfinished",
    ["10.orbax-checkpoint-tmp", "10.orbax-checkpoint-tmp-1767614400000000", "10/default.orbax-checkpoint-tmp"],
)
def test_a_save_that_orbax_still_writes_is_not_committed(site: TrainingSite, tmp_path: Path, unfinished: str) -> None:
    written = tmp_path / "saved" / unfinished / "array"
    written.parent.mkdir(parents=True)
    written.write_bytes(b"half")
    session = session_of(site, 1)
    session.report(1, 0.5)
    for folder in (tmp_path / "saved", tmp_path / "saved" / unfinished.partition("/")[0]):
        with pytest.raises(BadData, match=re.escape(unfinished.rpartition("/")[2]) + ": expected a finished save"):
            session.commit(folder_checkpoint(folder, data_cursor={}), last=True)
    assert site.checkpoints.manifests() == ()
