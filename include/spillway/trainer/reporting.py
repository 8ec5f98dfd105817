"""How far training is, told while it goes on: lines of the log, and the attempt's progress object."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from spillway.checkpoints.progress import Progress, write_progress
from spillway.errors import SpillwayError
from spillway.stores.base import ObjectStore
from spillway.trainer.committing import Committer
from spillway.trainer.contract import Contract
from spillway.trainer.progress import Lines, say

PROGRESS_PERIOD = timedelta(seconds=15)
"""Between two writes of the progress object, beside those that follow a commit."""

BUSY_PERIOD = timedelta(seconds=1)
"""Between two looks at whether something is to be told of work that is no step."""

_STEPS_OF_A_MEDIAN = 101
_LEAST_STEPS = 5
"""The first ones compile, warm up and fill caches; of fewer steps no usual time is known."""


class Reporter:
    """Tells of steps, and of work that is no step. A step never waits for the store: it is written to by a thread."""

    def __init__(self, contract: Contract, store: ObjectStore, committer: Committer) -> None:
        self._contract, self._store, self._committer = contract, store, committer
        self._began_at = datetime.now(UTC)
        self.last_step: int | None = None
        self.last_loss: float | None = None
        self._steps, self._words = Lines(), Lines(at_once=1)
        self._seconds: deque[float] = deque(maxlen=_STEPS_OF_A_MEDIAN)
        self._stepped_at: float | None = None
        self._telling, self._writing = threading.Lock(), threading.Lock()
        self._writer: threading.Thread | None = None
        self._began_writing_at = 0.0

    @property
    def step_seconds(self) -> float | None:
        """The median time from one of the last steps to the next, with all that lies between; None at the beginning."""
        seconds = tuple(self._seconds)  # another thread writes
        return statistics.median(seconds) if len(seconds) >= _LEAST_STEPS else None

    def step(self, step: int, loss: float) -> None:
        """Tell that the step is done, in the log not of each."""
        now = time.monotonic()
        if self._stepped_at is not None:
            self._seconds.append(now - self._stepped_at)
        self.last_step, self.last_loss, self._stepped_at = step, loss, now
        self._write_beside(now)
        if self._steps.due(now):
            first_step, total_steps = self._contract.first_step, self._contract.total_steps
            say("step", step=step, total_steps=total_steps, loss=loss, first_step=first_step)

    def alive(self, doing: str) -> None:
        """Tell that the process does something else than steps now, such as ``evaluating``."""
        now = time.monotonic()
        self._write_beside(now)
        with self._telling:
            due = self._words.due(now)
        if due:
            say("alive", doing=doing, step=self.last_step)

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Tell ``alive`` again and again, from a thread, for as long as the block lasts."""
        over = threading.Event()

        def tell() -> None:
            self.alive(doing)
            while not over.wait(BUSY_PERIOD.total_seconds()):
                self.alive(doing)

        threading.Thread(target=tell, name="busy", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def write(self) -> None:
        """Write the progress object. It is for people: a store that refuses it is said, and no reason to stop."""
        if self.last_step is None:
            return
        try:
            with self._writing:
                progress = Progress(
                    first_step=self._contract.first_step,
                    step=self.last_step,
                    total_steps=self._contract.total_steps,
                    loss=self.last_loss,
                    at=datetime.now(UTC).isoformat(),
                    durable_step=self._committer.durable_step,
                    slowest_commit_seconds=self._committer.slowest_seconds,
                    step_seconds=self.step_seconds,
                    began_at=self._began_at.isoformat(),
                )
                write_progress(self._store, self._contract.run, self._contract.attempt, progress)
        except SpillwayError as problem:
            say("progress-not-written", error=str(problem))

    def _write_beside(self, now: float) -> None:
        """Of a gang the pod that commits writes, and nothing is written while an earlier write has not ended."""
        if self._contract.rank != 0:
            return
        with self._telling:
            if self._writer is not None and self._writer.is_alive():
                return
            if self._writer is None or now - self._began_writing_at >= PROGRESS_PERIOD.total_seconds():
                self._began_writing_at = now
                self._writer = threading.Thread(target=self.write, name="progress", daemon=True)
                self._writer.start()
