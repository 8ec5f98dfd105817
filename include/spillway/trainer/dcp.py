"""Sharded checkpoints of PyTorch (``torch.distributed.checkpoint``): every rank sends its own shards.

A save has three phases. Each rank writes its shards to a folder of its own and sends what is new of them to the store;
PyTorch gathers at rank 0 what each has sent; rank 0 commits the step with the parts of all. A rank that fails or dies
before its parts are there keeps rank 0 from the third, so that the step never exists, and what was sent is swept later.

    turn = agree(session, step)
    if (turn.commit or turn.stop) and turn.fits:
        save(session, state, scratch, data_cursor={"next": step + 1}, last=turn.stop)

PyTorch comes with the training image; Spillway itself does not need it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]
import torch.distributed.checkpoint as dcp  # type: ignore[import-not-found]

from spillway.errors import Fenced, SpillwayError, TrainingFailed
from spillway.model import CheckpointPart
from spillway.trainer.session import Checkpoint, Session

METADATA = ".metadata"
"""PyTorch's own name for what tells which tensor lies where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a rank has sent, on its way to rank 0; ``result`` is PyTorch's own account of one item."""

    attempt: int
    step: int
    parts: tuple[CheckpointPart, ...]
    result: Any = None


class SessionWriter(dcp.FileSystemWriter):  # type: ignore[misc]
    """The storage of ``dcp.save`` and ``dcp.async_save``: one save of the step that was reported last.

    What lies on the store can be restored as a folder that plain ``dcp.load`` reads.
    """

    def __init__(
        self,
        session: Session,
        scratch: Path,
        *,
        data_cursor: Mapping[str, Any],
        metrics: Mapping[str, Any] | None = None,
        last: bool = False,
        single_file_per_rank: bool = False,
        thread_count: int = 1,
    ) -> None:
        """
        Args:
            scratch: a local folder with room for this rank's shards; nothing stays in it.
            last: no save follows: the step is committed when this one is done, otherwise beside training.
            single_file_per_rank: a part a rank (and thread). Otherwise a part a tensor, so that only those that have
                changed move; with very many tensors and ranks these are many small objects.
        """
        if session.last_step is None:
            raise TrainingFailed("a save belongs to a step: report it before it is saved")
        scratch.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="save-", dir=scratch))
        super().__init__(
            self._folder, single_file_per_rank=single_file_per_rank, thread_count=thread_count, sync_files=False
        )
        self._session, self._step, self._last = session, session.last_step, last
        self._data_cursor, self._metrics = data_cursor, metrics or {}
        self._began = time.monotonic()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise TrainingFailed("a step is committed by one rank for all: save it with use_collectives=True")
        if is_coordinator and not self._session.commits:
            raise TrainingFailed("rank 0 commits: let it coordinate the save, or start the ranks with torchrun")
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Write and send this rank's shards; done when they are on the store."""
        try:
            results = super().write_data(plan, planner).wait()
            files = {path.name: path for path in sorted(self._folder.iterdir())}
            parts = self._session.send(self._step, files) if files else ()
        finally:
            self._clear()
        own = Sent(attempt=self._session.contract.attempt, step=self._step, parts=parts)
        done: torch.futures.Future[list[Sent]] = torch.futures.Future()
        done.set_result([own, *(replace(own, parts=(), result=result) for result in results)])
        return done

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        """Commit the step; rank 0 is asked for this once every rank has sent its shards, so that it waited for all.

        Raises:
            TrainingFailed: a rank is of another attempt, or saved another step.
        """
        sent = [entry for of_rank in results for entry in of_rank]
        mine = (self._session.contract.attempt, self._step)
        others = sorted({(entry.attempt, entry.step) for entry in sent} - {mine})
        if others:
            raise TrainingFailed(
                f"rank 0 of attempt {mine[0]} saves step {mine[1]}, other ranks sent parts of (attempt, step) {others}"
            )
        self._folder.mkdir(exist_ok=True)
        try:
            super().finish(metadata, [[entry.result for entry in sent if entry.result is not None]])
            described = (self._folder / METADATA).read_bytes()
        finally:
            self._clear()
        parts = {part.name: part for entry in sent for part in entry.parts}
        checkpoint = Checkpoint(
            parts={**parts, METADATA: described},
            data_cursor=self._data_cursor,
            world_size=len(results),
            metrics=self._metrics,
            sent_seconds=time.monotonic() - self._began,
        )
        self._session.commit(checkpoint, last=self._last, step=self._step)

    def _clear(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class SessionReader(dcp.FileSystemReader):  # type: ignore[misc]
    """The storage of ``dcp.load``: the checkpoint that the attempt resumes from; a rank reads what it needs of it."""

    def __init__(self, session: Session, scratch: Path) -> None:
        super().__init__(scratch)
        self._session, self._folder = session, scratch

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        self._session.restore(self._folder, names={METADATA})
        return super().read_metadata(*args, **kwargs)

    def read_data(self, plan: Any, planner: Any) -> Any:
        names = {self.storage_data[item.storage_index].relative_path for item in plan.items}
        self._session.restore(self._folder, names=names)
        return super().read_data(plan, planner)


def save(session: Session, state: Mapping[str, Any], scratch: Path, **wanted: Any) -> None:
    """Save a step with all ranks; ``wanted`` are the other arguments of ``SessionWriter``.

    While it goes on it is no stall. Where a rank hangs in it, the others wait as long as their process group lets them.

    Raises:
        Fenced, Unreachable, TrainingFailed, CheckpointConflict: on every rank, whichever rank it happened to.
    """
    writer = SessionWriter(session, scratch, **wanted)
    try:
        with session.busy("commit"):
            dcp.save(dict(state), storage_writer=writer)
    except dcp.api.CheckpointException as problem:
        raise _typed(problem) from problem


def load(session: Session, state: Mapping[str, Any], scratch: Path) -> None:
    """Fill ``state``, on all ranks, from the checkpoint that the attempt resumes from.

    It may have been saved by another number of ranks. Nothing stays in ``scratch``.

    Raises:
        CorruptCheckpoint, Unreachable: on every rank, whichever rank it happened to.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="load-", dir=scratch) as folder:
        try:
            dcp.load(dict(state), storage_reader=SessionReader(session, Path(folder)))
        except dcp.api.CheckpointException as problem:
            raise _typed(problem) from problem


@dataclass(frozen=True, slots=True)
class Turn:
    """What all ranks do after a step; ``fits`` is whether another save still fits into what is left of the grace."""

    commit: bool
    stop: bool
    fits: bool


def agree(session: Session, step: int) -> Turn:
    """What all ranks do after this step: they save when rank 0 is to, and stop when any of them was told to.

    Only rank 0 knows how long a save takes; until it is told to stop itself every save fits. Every rank calls it after
    every step. Raises what ``Session.commit_due`` does, at rank 0.
    """
    on_gpu = dist.is_initialized() and dist.get_backend() == dist.Backend.NCCL
    seen = (session.commit_due(step), session.stop.requested, not session.commit_fits())
    wishes = torch.tensor([int(wish) for wish in seen], device="cuda" if on_gpu else "cpu")
    if dist.is_initialized():
        dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
    commit, stop, too_late = (bool(wish) for wish in wishes.tolist())
    return Turn(commit, stop, fits=not too_late)


def _typed(problem: Any) -> BaseException:
    """The error to act on, of those that ranks have had: a fence first, then what a retry does not help against."""
    found = [error for error, _ in problem.failures.values()]
    ours = [error for error in found if isinstance(error, SpillwayError)]
    ours.sort(key=lambda error: (not isinstance(error, Fenced), error.retry_helps))
    return (ours or found)[0]
