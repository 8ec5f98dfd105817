"""What waits in a replay: jobs that are alike stand in one line, of which the first is asked about for all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from spillway.model import PendingJob
from spillway.replay.decisions import Decisions
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.world import World


class Waiting:
    """The jobs that wait, by kind and by whether they hold back for on-premises; each line in the order of turns."""

    def __init__(self, world: World, decisions: Decisions) -> None:
        self.world, self.decisions = world, decisions
        self._lines: dict[tuple[object, bool], deque[Job]] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __iter__(self) -> Iterator[Job]:
        return (job for line in self._lines.values() for job in line)

    def add(self, job: Job, held: bool) -> None:
        """It waits, behind those whose turn is before its own."""
        line = self._lines.setdefault((job.kind, held), deque())
        line.append(job)
        if len(line) > 1 and line[-2].turn > job.turn:
            self._lines[job.kind, held] = deque(sorted(line, key=lambda one: one.turn))

    def open(self, job: Job) -> None:
        """It has held back for long enough."""
        held = self._lines[job.kind, True]
        held.remove(job)
        if not held:
            del self._lines[job.kind, True]
        self.add(job, False)

    def next(self, at: float) -> tuple[Job, Pool] | None:
        """The first that gets a place, and the place that the policy chooses for it; it waits no longer."""
        first: tuple[Job, Pool, tuple[object, bool]] | None = None
        for key, line in self._lines.items():
            if first is not None and first[0].turn < line[0].turn:
                continue
            pool = self.decisions.choose(line[0], key[1], at)
            if pool is not None:
                first = line[0], pool, key
        if first is None:
            return None
        job, pool, key = first
        self._lines[key].popleft()
        if not self._lines[key]:
            del self._lines[key]
        return job, pool

    def pending(self, at: float) -> list[PendingJob]:
        """Those that hold back no longer, as the scaler sees them."""
        found: list[PendingJob] = []
        for (_, held), line in self._lines.items():
            if not held:
                places = self.decisions.queues_at(line[0], at)
                found += (job.pending(places, self.world) for job in line)
        return found
