"""What waits in a replay: jobs that are alike stand in one line, of which the first is asked about for all."""

from __future__ import annotations

from collections import deque

from spillway.model import PendingJob
from spillway.replay.decisions import Decisions
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.world import World


class Waiting:
    """The jobs that wait, by kind and by whether they hold back for on-premises; each line in the order of turns.

    ``jobs`` and ``gpus`` are how many they are, and want.
    """

    def __init__(self, world: World, decisions: Decisions) -> None:
        self.world, self.decisions = world, decisions
        self.jobs = self.gpus = 0
        self._lines: dict[tuple[object, bool], deque[Job]] = {}

    def add(self, job: Job, held: bool) -> None:
        """It waits, behind those whose turn is before its own."""
        self._count(job, 1)
        line = self._lines.get((job.kind, held))
        if line is None:
            self._lines[job.kind, held] = deque((job,))
        elif line[-1].turn < job.turn:
            line.append(job)
        else:
            self._lines[job.kind, held] = deque(sorted((*line, job), key=lambda one: one.turn))

    def open(self, job: Job) -> None:
        """It has held back for long enough."""
        self._remove(job, (job.kind, True))
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
        self._remove(job, key)
        return job, pool

    def pending(self, at: float) -> list[PendingJob]:
        """All of them as the scaler sees them: who holds back wants room on-premises alone."""
        found: list[PendingJob] = []
        for (_, held), line in self._lines.items():
            places = self.decisions.queues_at(line[0], held, at)
            found += (job.pending(places, self.world) for job in line)
        return found

    def _remove(self, job: Job, key: tuple[object, bool]) -> None:
        self._count(job, -1)
        line = self._lines[key]
        line.remove(job)
        if not line:
            del self._lines[key]

    def _count(self, job: Job, jobs: int) -> None:
        self.jobs += jobs
        self.gpus += jobs * job.gpus
