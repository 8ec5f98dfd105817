"""One attempt from inside its container: its data, where it goes on, how it reports and commits, when it must stop."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spillway.checkpoints.curve import LOSS
from spillway.checkpoints.layout import head_key
from spillway.checkpoints.progress import Progress, write_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import (
    CheckpointConflict,
    ConfigError,
    Fenced,
    Missing,
    SpillwayError,
    TrainingFailed,
)
from spillway.model import CheckpointManifest
from spillway.stores.base import ObjectStore, read_all
from spillway.trainer.contract import Contract
from spillway.trainer.progress import say
from spillway.trainer.stop import StopSignal

FAILED_COMMITS = 3
"""Commits that may fail in a row before the job fails: until then training goes on, and the next one carries all."""

_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a program hands over to be committed. ``data_cursor`` says, as plain JSON, which data comes next."""

    parts: Mapping[str, bytes]
    data_cursor: Mapping[str, Any]
    world_size: int = 1


class Session:
    """The platform, as training code sees it."""

    def __init__(
        self, contract: Contract, stop: StopSignal, *, data: ObjectStore, checkpoints: CheckpointStore
    ) -> None:
        self.contract, self.stop = contract, stop
        self._data, self._checkpoints = data, checkpoints
        self.resumed_from: CheckpointManifest | None = None
        self.last_step: int | None = None
        self.last_loss: float | None = None
        self.durable_step = contract.resumed_from_step
        self._losses: list[tuple[int, float]] = []
        self._failures = 0
        self._slowest_commit_seconds: float | None = None

    # -- begin --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Check that this attempt owns the run, and that the checkpoint to resume from is the one that was promised.

        Raises:
            Fenced: a newer attempt owns the run.
            ForeignCheckpoint, CorruptCheckpoint: the checkpoint cannot be used.
            ConfigError: it is of another step than SPILLWAY_RESUMED_FROM_STEP.
        """
        contract = self.contract
        head = self._checkpoints.head()
        if head is None:
            fix = "the platform writes it before it launches an attempt"
            raise Missing("object", head_key(contract.run), self._checkpoints.store.name, fix=fix)
        if head.attempt != contract.attempt:
            where = self._checkpoints.store.name
            raise Fenced(contract.run, attempt=contract.attempt, owner=head.attempt, where=where)
        if contract.resume_manifest is not None:
            self.resumed_from = self._checkpoints.committed_manifest(contract.resume_manifest)
            if self.resumed_from.step != contract.resumed_from_step:
                problem = f"expected {self.resumed_from.step} as in the manifest, got {contract.resumed_from_step}"
                raise ConfigError("environment", "SPILLWAY_RESUMED_FROM_STEP", problem)
        say(
            "started",
            run=contract.run,
            attempt=contract.attempt,
            first_step=contract.first_step,
            total_steps=contract.total_steps,
            resumed_from_step=contract.resumed_from_step,
        )

    def dataset(self) -> dict[str, bytes]:
        """Every object of the data set by its name after the prefix, in the order of names.

        Raises:
            Missing: there is none.
        """
        prefix = self.contract.dataset_prefix
        keys = sorted(info.key for info in self._data.list(prefix))
        if not keys:
            raise Missing("data set", prefix, self._data.name, fix="sync it to this site before the launch")
        return {key.removeprefix(prefix): read_all(self._data, key) for key in keys}

    def load(self, name: str) -> bytes:
        """A part of the checkpoint that this attempt resumes from, verified."""
        if self.resumed_from is None:
            raise LookupError("this attempt begins with step 1: there is no checkpoint to load from")
        return self._checkpoints.load(self.resumed_from, name)

    # -- each step ----------------------------------------------------------------------------------------------------

    def report(self, step: int, loss: float) -> None:
        """Say that a step is done; the loss goes into the next commit.

        Raises:
            TrainingFailed: the loss is not a number any more.
        """
        if not math.isfinite(loss):
            raise TrainingFailed(f"run '{self.contract.run}': the loss of step {step} is {loss}: training diverged")
        self.last_step, self.last_loss = step, loss
        self._losses.append((step, loss))
        first_step, total_steps = self.contract.first_step, self.contract.total_steps
        if step == first_step:
            self._write_progress()
        say("step", step=step, total_steps=total_steps, loss=loss, first_step=first_step)

    def commit(self, checkpoint: Checkpoint, *, last: bool) -> None:
        """Commit the step that was reported last.

        A failed commit is reported, and the next one takes its losses along. ``last`` says that there is no next one:
        it is tried again at once.

        Raises:
            Fenced: a newer attempt owns the run.
            TrainingFailed: ``FAILED_COMMITS`` in a row have failed.
        """
        while True:
            try:
                self._commit(checkpoint)
            except (Fenced, CheckpointConflict):
                raise
            except SpillwayError as problem:
                self._count_failure(problem)
            else:
                return
            if not last:
                return
            time.sleep(_RETRY_SECONDS)

    def _commit(self, checkpoint: Checkpoint) -> None:
        assert self.last_step is not None
        began = time.monotonic()
        manifest = self._checkpoints.commit(
            step=self.last_step,
            attempt=self.contract.attempt,
            world_size=checkpoint.world_size,
            parts=checkpoint.parts,
            data_cursor=checkpoint.data_cursor,
            metrics={LOSS: [list(pair) for pair in self._losses]},
            now=datetime.now(UTC),
        )
        seconds = round(time.monotonic() - began, 3)
        self.durable_step, self._failures = manifest.step, 0
        self._slowest_commit_seconds = max(seconds, self._slowest_commit_seconds or 0.0)
        self._losses.clear()
        grace = self.contract.grace.total_seconds()
        say("committed", step=manifest.step, bytes=manifest.size_bytes, seconds=seconds, fits_grace=seconds < grace)
        self._write_progress()

    def _count_failure(self, problem: SpillwayError) -> None:
        self._failures += 1
        durable = "none" if self.durable_step is None else str(self.durable_step)
        say("commit-failed", step=self.last_step, durable_step=self.durable_step, error=str(problem))
        if self._failures >= FAILED_COMMITS:
            raise TrainingFailed(
                f"run '{self.contract.run}': {self._failures} commits in a row failed, the last one of step "
                f"{self.last_step}; the last durable step is {durable}: {problem}"
            ) from problem

    def _write_progress(self) -> None:
        """Progress is for people: a store that refuses it is said, and no reason to stop training."""
        assert self.last_step is not None
        progress = Progress(
            first_step=self.contract.first_step,
            step=self.last_step,
            total_steps=self.contract.total_steps,
            loss=self.last_loss,
            at=datetime.now(UTC).isoformat(),
            durable_step=self.durable_step,
            slowest_commit_seconds=self._slowest_commit_seconds,
        )
        try:
            write_progress(self._checkpoints.store, self.contract.run, self.contract.attempt, progress)
        except SpillwayError as problem:
            say("progress-not-written", error=str(problem))
