"""Checkpoints that a framework writes as a folder of files: Orbax, Lightning, DeepSpeed.

The framework saves to a local folder as it always does; the folder is committed as one step, each file a part, and
comes back under the same names. A program that saves to one folder again and again gives each save a folder of its own,
for the files are read beside training. Folders without a file in them do not come back; no framework needs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway.errors import BadData, CorruptCheckpoint
from spillway.trainer.session import Checkpoint, Session

_UNFINISHED = ".orbax-checkpoint-tmp"
"""What Orbax calls a folder until all of it is written; DeepSpeed and Lightning return when they are done."""


def folder_checkpoint(
    folder: Path, *, data_cursor: Mapping[str, Any], world_size: int = 1, metrics: Mapping[str, Any] | None = None
) -> Checkpoint:
    """The folder's files, to be committed; they must stay as they are until that is done.

    Raises:
        BadData: the folder has no file, a save into it has not ended, or something in it is a link or a device: what a
            link points at may change while it is committed, or lie outside.
    """
    paths = sorted(folder.rglob("*"))
    for path in (folder, *paths):
        if _UNFINISHED in path.name:
            raise BadData(str(path), "expected a finished save, Orbax still writes it; wait until it is, then commit")
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BadData(str(path), "expected a plain file, it is a link or a device; save it as a file")
    parts = {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
    if not parts:
        raise BadData(str(folder), "expected the files of a checkpoint, there is none; save it before it is committed")
    return Checkpoint(parts=parts, data_cursor=data_cursor, world_size=world_size, metrics=metrics or {})


def restore_folder(session: Session, folder: Path, *, world_size: int | None = None) -> None:
    """Write the files of the checkpoint that this attempt resumes from; each appears whole and verified, or not at all.

    Args:
        world_size: of this attempt, where its files are of one rank each; None where any number of ranks can load it.
    Raises:
        CorruptCheckpoint: a part is damaged, or the checkpoint was saved by another number of ranks.
        StoreFull: the disk has no room.
        Unreachable: the store did not answer for longer than it is waited for.
    """
    manifest = session.resumed_from
    if manifest is not None and world_size not in (None, manifest.world_size):
        seen = f"it was saved by {manifest.world_size} ranks, this attempt has {world_size}"
        raise CorruptCheckpoint(manifest.run, manifest.step, f"{seen}; run it with as many, or convert it")
    session.restore(folder)
