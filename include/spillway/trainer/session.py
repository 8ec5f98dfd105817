"""One attempt from inside its container: its data, where it goes on, how it reports and commits, when it must stop."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from spillway.checkpoints.layout import head_key
from spillway.checkpoints.parts import Body
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import (
    Fenced,
    KeepsChanging,
    Missing,
    PreconditionFailed,
    SpillwayError,
    TrainingFailed,
)
from spillway.model import CheckpointManifest, CheckpointPart
from spillway.stores.base import ObjectStore, read_all
from spillway.trainer.cache import open_cache, tell, through
from spillway.trainer.committing import Committer, Snapshot
from spillway.trainer.contract import Contract
from spillway.trainer.data import object_versions
from spillway.trainer.outage import Outage
from spillway.trainer.progress import say
from spillway.trainer.reporting import Reporter
from spillway.trainer.stop import StopSignal

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What a program hands over to be committed: bytes, files that stay as they are until it is, or what was sent.

    It is the whole state: of a gang only rank 0 commits. What the other ranks have of it they ``send``.

    ``data_cursor`` says, as plain JSON, which data comes next; ``metrics`` what the program measured at this step.
    ``sent_seconds`` is how long the slowest rank took to send: a pod's grace must be enough for that, too.
    """

    parts: Mapping[str, Body]
    data_cursor: Mapping[str, Any]
    world_size: int = 1
    metrics: Mapping[str, Any] = field(default_factory=dict)
    sent_seconds: float = 0.0


class Session:
    """The platform, as training code sees it."""

    def __init__(
        self, contract: Contract, stop: StopSignal, *, data: ObjectStore, checkpoints: CheckpointStore
    ) -> None:
        self.contract, self.stop = contract, stop
        self._cache = open_cache(contract)
        self._data, self._checkpoints = through(self._cache, data), checkpoints
        self.resumed_from: CheckpointManifest | None = None
        self._losses: list[tuple[int, float]] = []
        self._keeping = threading.Lock()
        self._outage = self._new_outage()
        self._committer = Committer(contract, stop, checkpoints, self._committed, on_wait=partial(self.alive, "commit"))
        self._reporter = Reporter(contract, checkpoints.store, self._committer)

    @property
    def commits(self) -> bool:
        """Whether it is this pod that commits: the first one of a gang does, for all."""
        return self.contract.rank == 0

    @property
    def last_step(self) -> int | None:
        """The step that was reported last; None before the first."""
        return self._reporter.last_step

    @property
    def durable_step(self) -> int | None:
        """The newest committed step, of whichever attempt; None also where another pod commits."""
        return self._committer.durable_step if self.commits else None

    def _new_outage(self) -> Outage:
        return Outage(self.stop, patience=self.contract.store_patience, grace=self.contract.grace)

    # -- begin --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Check that this attempt owns the run, and that the checkpoint to resume from is the one that was promised.

        Raises:
            Fenced: a newer attempt owns the run.
            ForeignCheckpoint, CorruptCheckpoint: the checkpoint cannot be used.
            ConfigError: it is of another step than SPILLWAY_RESUMED_FROM_STEP.
            Unreachable: the store did not answer for longer than ``store_patience``; so for every method below.
        """
        contract = self.contract
        head = self._patiently(self._checkpoints.head)
        if head is None:
            fix = "the platform writes it before it launches an attempt"
            raise Missing("object", head_key(contract.run), self._checkpoints.store.name, fix=fix)
        if head.attempt != contract.attempt:
            where = self._checkpoints.store.name
            raise Fenced(contract.run, attempt=contract.attempt, owner=head.attempt, where=where)
        if contract.resume_manifest is not None:
            promised = partial(self._checkpoints.committed_manifest, contract.resume_manifest)
            self.resumed_from = self._patiently(promised)
            contract.check_step(self.resumed_from)
        say(
            "started",
            run=contract.run,
            attempt=contract.attempt,
            first_step=contract.first_step,
            total_steps=contract.total_steps,
            resumed_from_step=contract.resumed_from_step,
        )

    def dataset(self, name: str | None = None) -> dict[str, bytes]:
        """Every object of the data set by its name after the prefix, in the order of names; all of one version.

        Args:
            name: as the job file names it; None is the first one there.
        Raises:
            UnknownName: the job reads none of that name.
            Missing: there is none.
            KeepsChanging: it did while it was read, for as long as a silent store is waited for.
        """
        access = self.contract.dataset_of(name)
        where, prefix = self._data.name, access.scope.prefix
        changing = self._new_outage()
        while True:
            versions = self._patiently(partial(object_versions, self._data, access))
            if not versions:
                raise Missing("data set", prefix, where, fix="sync it to this site before the launch")
            try:
                found = {key.removeprefix(prefix): self._read(key, versions[key]) for key in sorted(versions)}
                tell(self._cache)
                return found
            except (PreconditionFailed, Missing) as problem:
                changing.failed()
                say("dataset-changed", error=str(problem))
                if changing.hopeless:
                    seen = f"while it was read for {changing.seconds:.0f} s"
                    raise KeepsChanging(f"data set '{prefix}' of {where}", seen) from problem
            changing.wait()

    def _read(self, key: str, etag: str) -> bytes:
        return self._patiently(partial(read_all, self._data, key, if_match=etag))

    def load(self, name: str) -> bytes:
        """A part of the checkpoint that this attempt resumes from, verified."""
        if self.resumed_from is None:
            raise LookupError("this attempt begins with step 1: there is no checkpoint to load from")
        return self._patiently(partial(self._checkpoints.load, self.resumed_from, name))

    def restore(self, folder: Path, *, names: Collection[str] | None = None) -> None:
        """Write every part of the checkpoint that this attempt resumes from, or those named, as a file, verified.

        What an interrupted restore has left there already is not read again.
        """
        if self.resumed_from is None:
            raise LookupError("this attempt begins with step 1: there is no checkpoint to restore")
        self._patiently(partial(self._checkpoints.restore, self.resumed_from, folder, names=names))

    def _patiently(self, read: Callable[[], _T]) -> _T:
        """What ``read`` gives, once the store answers; raises what it raised last where the store stays silent."""
        while True:
            try:
                found = read()
            except SpillwayError as problem:
                if not problem.retry_helps:
                    raise
                self._outage.failed()
                say("store-silent", seconds=round(self._outage.seconds, 1), error=str(problem))
                if self._outage.hopeless:
                    raise
            else:
                self._outage.ended()
                return found
            self._outage.wait()

    # -- each step ----------------------------------------------------------------------------------------------------

    def report(self, step: int, loss: float) -> None:
        """Say that a step is done, in the log not of each; the loss goes into the next commit.

        Raises:
            TrainingFailed: the loss is not a number any more.
        """
        if not math.isfinite(loss):
            raise TrainingFailed(f"run '{self.contract.run}': the loss of step {step} is {loss}: training diverged")
        if self.commits:
            with self._keeping:
                self._losses.append((step, loss))
        self._reporter.step(step, loss)

    def alive(self, doing: str) -> None:
        """Say that the program does something that is no step, such as ``evaluating``; again and again while it does.

        A job whose steps stop without a word for long is taken for stalled, and stopped.
        """
        self._reporter.alive(doing)

    def busy(self, doing: str) -> AbstractContextManager[None]:
        """Say ``alive`` for as long as the block lasts; for a call that blocks, and that ends by itself in any case."""
        return self._reporter.busy(doing)

    def commit_due(self, step: int) -> bool:
        """Whether this step is to be committed: one in so many, and any while an earlier one is still to be made up.

        Never where another pod commits.

        Raises:
            Fenced, CheckpointConflict, Unreachable, TrainingFailed: an earlier commit ended so.
        """
        return self.commits and self._committer.due(step)

    def send(self, step: int, parts: Mapping[str, bytes | Path]) -> tuple[CheckpointPart, ...]:
        """Send this rank's part of a step's state, for rank 0 to commit with that of the others; any rank may.

        Returns when the parts are on the store. They count once rank 0 has committed them, and never otherwise.

        Raises:
            Fenced: a newer attempt owns the run; nothing was sent.
        """
        contract = self.contract
        send = partial(self._checkpoints.send, step=step, attempt=contract.attempt, parts=parts, rank=contract.rank)
        with self.busy("commit"):
            return self._patiently(send)

    def commit(self, checkpoint: Checkpoint, *, last: bool, step: int | None = None) -> None:
        """Commit the step that was reported last, beside training; the checkpoint must not change any more.

        A failed commit is reported, and the next one takes its losses along. ``last`` says that there is no next one:
        it has succeeded when this returns. ``step`` is of the checkpoint, where later ones were reported meanwhile.

        Raises:
            Fenced: a newer attempt owns the run.
            Unreachable: the store did not answer for longer than it is waited for.
            TrainingFailed: the store refused ``REFUSED_COMMITS`` in a row, or it is another pod that commits.
        """
        assert self.last_step is not None
        if not self.commits:
            seen = f"rank {self.contract.rank} was to commit step {self.last_step}"
            fix = "rank 0 commits the whole state, look at Session.commits before"
            raise TrainingFailed(f"run '{self.contract.run}': {seen}; {fix}")
        step = step or self.last_step
        with self._keeping:
            self._losses = [pair for pair in self._losses if pair[0] > (self.durable_step or 0)]
            losses = tuple(pair for pair in self._losses if pair[0] <= step)
        snapshot = Snapshot(
            step=step,
            parts=checkpoint.parts,
            data_cursor=checkpoint.data_cursor,
            world_size=checkpoint.world_size,
            metrics=checkpoint.metrics,
            losses=losses,
            sent_seconds=checkpoint.sent_seconds,
        )
        if last:
            self._committer.commit(snapshot)
        else:
            self._committer.begin(snapshot)

    def settle(self) -> None:
        """Wait for the commit that is on its way, after the stop signal within the grace; raises as ``commit``."""
        self._committer.settle()

    def commit_fits(self) -> bool:
        """Whether another commit fits into what is left of the grace, told where it does not."""
        fits = self._committer.fits()
        if not fits:
            say("last-commit-left-out", step=self.last_step, seconds=self._committer.slowest_seconds)
        return fits

    def _committed(self, manifest: CheckpointManifest, seconds: float) -> None:
        fits = seconds < self.contract.grace.total_seconds()
        say("committed", step=manifest.step, bytes=manifest.size_bytes, seconds=seconds, fits_grace=fits)
        self._reporter.write()
