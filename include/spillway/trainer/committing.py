"""Commits beside training: a step waits for its snapshot, never for the store."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spillway.checkpoints.curve import LOSS
from spillway.checkpoints.parts import Body
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import CheckpointConflict, Fenced, SpillwayError, TrainingFailed, Unreachable
from spillway.model import CheckpointManifest, CheckpointPart
from spillway.trainer.contract import Contract
from spillway.trainer.outage import Outage
from spillway.trainer.progress import say
from spillway.trainer.stop import StopSignal

REFUSED_COMMITS = 3
"""Commits that the store may refuse before the job fails: until then training goes on, and the next one carries all."""

WAITING_BYTES = 64 << 20
"""Snapshots may wait in memory up to here. Of larger ones there is one at a time."""

_MARGIN_SECONDS = 0.5
"""Of the grace, to say how it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A step as it was when it was to be committed; training does not change it any more.

    ``losses`` are those since some earlier commit; what is durable by then is left out when it is committed.
    ``sent_seconds`` went by before, while ranks sent their parts: they are part of what a commit takes.
    """

    step: int
    parts: Mapping[str, Body]
    data_cursor: Mapping[str, Any]
    world_size: int
    metrics: Mapping[str, Any]
    losses: tuple[tuple[int, float], ...]
    sent_seconds: float = 0.0

    @property
    def memory_bytes(self) -> float:
        """Infinite where parts are files, which the program wants to write again; nothing of what was sent already."""
        return sum(map(_memory_bytes, self.parts.values()))


def _memory_bytes(part: Body) -> float:
    if isinstance(part, CheckpointPart):
        return 0
    return len(part) if isinstance(part, bytes) else math.inf


class Committer:
    """Commits snapshots in a thread of its own, in their order.

    While there is no room for another one none is taken: the step that is due meanwhile is made up for by the first
    one after. What went wrong is raised in the thread that trains, at its next step. While that thread waits for the
    commits that are left, it calls ``on_wait`` every so often.
    """

    def __init__(
        self,
        contract: Contract,
        stop: StopSignal,
        checkpoints: CheckpointStore,
        on_commit: Callable[[CheckpointManifest, float], None],
        *,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._contract, self._stop, self._checkpoints = contract, stop, checkpoints
        self._on_commit, self._on_wait = on_commit, on_wait
        self.durable_step = contract.resumed_from_step
        self.slowest_seconds: float | None = None
        self._outage = Outage(stop, patience=contract.store_patience, grace=contract.grace)
        self._refusals, self._owed, self._usual_bytes = 0, False, math.inf
        self._changed = threading.Condition()
        self._waiting: deque[Snapshot] = deque()
        self._ended: deque[tuple[Snapshot, BaseException | None]] = deque()
        self._current: Snapshot | None = None

    def due(self, step: int) -> bool:
        """Whether the step is to be committed: one in so many, and any while an earlier one is to be made up for.

        Raises:
            Fenced, CheckpointConflict, Unreachable, TrainingFailed: as ``commit``.
        """
        self._collect()
        due = self._owed or self._outage.try_due or step % self._contract.checkpoint_every == 0
        self._owed = due and not self._has_room()
        return due and not self._owed

    def begin(self, snapshot: Snapshot) -> None:
        """Commit the snapshot after those that wait already; returns at once."""
        self._owed, self._usual_bytes = False, snapshot.memory_bytes
        with self._changed:
            self._waiting.append(snapshot)
            if self._current is None:
                self._current = self._waiting.popleft()
                threading.Thread(target=self._work, args=(self._current,), name="commit", daemon=True).start()

    def commit(self, snapshot: Snapshot) -> None:
        """Commit now, and again until it succeeds or the store is given up.

        Raises:
            Fenced: a newer attempt owns the run.
            CheckpointConflict: the step was committed with other content.
            Unreachable: the store did not answer for longer than it is waited for.
            TrainingFailed: the store refused ``REFUSED_COMMITS`` in a row.
        """
        while self.durable_step != snapshot.step:
            self.begin(snapshot)
            self.settle()
            if self.durable_step != snapshot.step:
                self._outage.wait()

    def settle(self) -> None:
        """Wait until every commit has ended, after the stop signal within the grace; raises as ``commit``.

        After the stop signal only the newest of those that wait is begun: it carries all, and little time is left.
        """
        with self._changed:
            while self._current is not None:
                left = self._left_seconds()
                while left is not None and len(self._waiting) > 1:
                    self._waiting.popleft()
                if left == 0:
                    seen = f"the commit of step {self._current.step} did not end within the grace; {self._durable()}"
                    raise Unreachable(self._checkpoints.store.name, seen)
                self._on_wait()
                self._changed.wait(_MARGIN_SECONDS if left is None else min(_MARGIN_SECONDS, left))
        self._collect()

    def fits(self) -> bool:
        """Whether one more commit fits into what is left of the grace, as far as earlier ones tell."""
        left = self._left_seconds()
        return left is None or (self.slowest_seconds or 0.0) <= left

    def _has_room(self) -> bool:
        with self._changed:
            if self._current is None:
                return True
            taken = sum(snapshot.memory_bytes for snapshot in (self._current, *self._waiting))
            return taken + self._usual_bytes <= WAITING_BYTES

    def _left_seconds(self) -> float | None:
        """Of the grace; None before the stop signal."""
        if self._stop.requested_at is None:
            return None
        end = self._stop.requested_at + self._contract.grace.total_seconds() - _MARGIN_SECONDS
        return max(end - time.monotonic(), 0.0)

    def _work(self, first: Snapshot) -> None:
        """Commit the snapshot and those that wait by then.

        Which one comes next is known from within the lock only: once it is released another thread may have begun.
        """
        snapshot: Snapshot | None = first
        while snapshot is not None:
            problem: BaseException | None = None
            try:
                self._commit(snapshot)
            except BaseException as raised:
                problem = raised
            with self._changed:
                self._ended.append((snapshot, problem))
                if isinstance(problem, (Fenced, CheckpointConflict)):
                    self._waiting.clear()
                snapshot = self._current = self._waiting.popleft() if self._waiting else None
                self._changed.notify_all()

    def _commit(self, snapshot: Snapshot) -> None:
        began, durable = time.monotonic(), self.durable_step or 0
        manifest = self._checkpoints.commit(
            step=snapshot.step,
            attempt=self._contract.attempt,
            world_size=snapshot.world_size,
            parts=snapshot.parts,
            data_cursor=snapshot.data_cursor,
            metrics={**snapshot.metrics, LOSS: [[step, loss] for step, loss in snapshot.losses if step > durable]},
            now=datetime.now(UTC),
        )
        seconds = round(snapshot.sent_seconds + time.monotonic() - began, 3)
        self.durable_step = manifest.step
        self.slowest_seconds = max(seconds, self.slowest_seconds or 0.0)
        self._on_commit(manifest, seconds)

    def _collect(self) -> None:
        """Take note of how commits ended; raises where one is the last straw. What a success came after is forgiven."""
        failures: list[tuple[int, SpillwayError]] = []
        while self._ended:
            snapshot, problem = self._ended.popleft()
            if problem is None:
                self._refusals = 0
                self._outage.ended()
                failures.clear()
            elif isinstance(problem, SpillwayError) and not isinstance(problem, (Fenced, CheckpointConflict)):
                say("commit-failed", step=snapshot.step, durable_step=self.durable_step, error=str(problem))
                failures.append((snapshot.step, problem))
            else:
                raise problem
        for step, failure in failures:
            self._count_failure(step, failure)

    def _count_failure(self, step: int, problem: SpillwayError) -> None:
        """Note a commit that failed; raises where the store is given up."""
        if problem.retry_helps:
            self._outage.failed()
            if self._outage.hopeless:
                where, silence = self._checkpoints.store.name, f"{self._outage.seconds:.0f} s"
                seen = f"no commit succeeded for {silence}, {self._durable()}: {problem}"
                raise Unreachable(where, seen) from problem
            return
        self._refusals += 1
        if self._refusals >= REFUSED_COMMITS:
            raise TrainingFailed(
                f"run '{self._contract.run}': {self._refusals} commits in a row failed, the last one of step "
                f"{step}; {self._durable()}: {problem}"
            ) from problem

    def _durable(self) -> str:
        return f"the last durable step is {'none' if self.durable_step is None else self.durable_step}"
