"""A checkpoint of a run as files on a disk, for people."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spillway.checkpoints.layout import CommittedStep
from spillway.checkpoints.parts import drafts_folder, missing_files
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import (
    ConfigError,
    CorruptCheckpoint,
    ForeignCheckpoint,
    Missing,
    NoValidCheckpoint,
    SpillwayError,
    Unreachable,
)
from spillway.model import CheckpointManifest, CheckpointPart
from spillway.runs.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore wrote, or would write. ``rejected``: why not a newer step, or another site."""

    run: str
    site: str
    step: int
    attempt: int
    world_size: int
    files_written: int
    bytes_written: int
    files_kept: int
    rejected: tuple[str, ...] = ()


def restore_run(
    services: Services,
    run: str,
    folder: Path,
    *,
    step: int | None = None,
    site: str | None = None,
    dry_run: bool = False,
) -> Restored:
    """Write the newest valid step of the run, or ``step``, as files under ``folder``.

    Files that have its bytes already are kept, so a restore that was cut off goes on where it was. What was written of
    a step that turns out to be damaged is removed before an older one is written; no other file ever is.

    Raises:
        Missing: ``step`` is not committed at any site that was asked.
        NoValidCheckpoint: no step is valid.
        ConfigError: the folder holds files that are not of this checkpoint.
        StoreFull: the disk has no room.
    """
    rejected: list[str] = []
    silent: set[str] = set()
    made: dict[CommittedStep, list[Path]] = {}
    for name, checkpoints, entry in _candidates(services, run, site, step, rejected):
        if name in silent:
            continue
        for other in made.keys() - {entry}:
            _remove(made.pop(other), folder)
        try:
            manifest = checkpoints.manifest(entry)
            done = _missing(manifest, folder, rejected)
            if not dry_run:
                made.setdefault(entry, [file for part in done if not (file := folder / part.name).exists()])
                checkpoints.restore(manifest, folder)
        except (CorruptCheckpoint, ForeignCheckpoint) as problem:
            told = problem.problem if isinstance(problem, CorruptCheckpoint) else problem
            rejected.append(f"{name}: step {entry.step} of attempt {entry.attempt}: {told}")
            continue
        except Unreachable as problem:
            rejected.append(f"{name}: {problem}")
            silent.add(name)
            continue
        return Restored(
            run=run,
            site=name,
            step=manifest.step,
            attempt=manifest.attempt,
            world_size=manifest.world_size,
            files_written=len(done),
            bytes_written=sum(part.size_bytes for part in done),
            files_kept=len(manifest.parts) - len(done),
            rejected=tuple(rejected),
        )
    if not silent:  # else another call may go on where this one was cut off
        for files in made.values():
            _remove(files, folder)
    raise NoValidCheckpoint(run, site or "any site", rejected)


def _candidates(
    services: Services, run: str, site: str | None, step: int | None, rejected: list[str]
) -> list[tuple[str, CheckpointStore, CommittedStep]]:
    """Every step that may be restored, the newest first; notes the sites that could not be asked."""
    found: list[tuple[str, CheckpointStore, CommittedStep]] = []
    for name, checkpoints in services.checkpoint_stores(run).items():
        if site not in (None, name):
            continue
        try:
            head = checkpoints.head()
        except SpillwayError as problem:
            rejected.append(f"{name}: {problem}")
            continue
        found += [(name, checkpoints, entry) for entry in (head.committed if head else ())]
    wanted = [candidate for candidate in found if step in (None, candidate[2].step)]
    if step is not None and not wanted:
        known = ", ".join(str(number) for number in sorted({entry.step for *_, entry in found})) or "none"
        raise Missing("step", str(step), f"run '{run}'", fix="; ".join([f"committed steps: {known}", *rejected]))
    return sorted(wanted, key=lambda candidate: candidate[2].age_order, reverse=True)


def _missing(manifest: CheckpointManifest, folder: Path, rejected: list[str]) -> tuple[CheckpointPart, ...]:
    """The parts that are to be written; raises ConfigError where the folder holds files that are not of the step."""
    names = {part.name for part in manifest.parts}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    drafts = drafts_folder(manifest.parts) + "/"
    if foreign := sorted(name for name in there - names if not name.startswith(drafts)):
        problem = f"expected an empty folder or an earlier restore of step {manifest.step}, it holds '{foreign[0]}'"
        raise ConfigError(str(folder), "", "; not used: ".join([problem, *rejected]))
    return missing_files(manifest.parts, folder)


def _remove(files: Iterable[Path], folder: Path) -> None:
    """Remove files, and the folders below ``folder`` that are empty then: frameworks take steps from their names."""
    for file in files:
        file.unlink(missing_ok=True)
        with suppress(OSError):
            for parent in file.parents[: len(file.relative_to(folder).parents) - 1]:
                parent.rmdir()
