"""The runs of a replay on bought GPUs, and which of them the live rule sends back to on-premises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from math import inf

from spillway.replay.data import Transfers
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.world import ROUNDED, World
from spillway.scaling.returning import BoughtRun, ReturnRules, plan_returns


class Bought:
    """Jobs that train in a cloud, in the order in which they began there.

    ``steady_until``: as long as nothing happens before, the answer about the last home is the same, which is nobody.
    """

    def __init__(self, world: World, rules: ReturnRules | None, transfers: Transfers) -> None:
        self.world, self.rules, self.transfers = world, rules, transfers
        self.steady_until = inf
        self._stays_until: dict[tuple[int, int], float] = {}
        self._jobs: dict[int, Job] = {}

    @property
    def may_return(self) -> bool:
        return self.rules is not None and bool(self._jobs)

    def began(self, job: Job) -> None:
        self._jobs[job.index] = job

    def left(self, job: Job) -> None:
        """It is there no longer, if it was."""
        self._jobs.pop(job.index, None)
        for home in self.world.local:
            self._stays_until.pop((home.place, job.index), None)

    def returning(self, home: Pool, at: float) -> Iterator[Job]:
        """Those that go to ``home`` now, in the order in which they get its room."""
        self.steady_until = inf
        if self.rules is None or not home.room.total:
            return
        able = list(self._able(home, at - self.rules.after.total_seconds(), at))
        if not able:
            return
        runs = [self._run(job, home, at) for job in able]
        found = plan_returns(runs, home.room, self.rules, self.world.moment(at))
        if not found:
            self._stay(able, home, at)
        for back in found:
            yield self._jobs[int(back.run)]

    def _able(self, home: Pool, soonest: float, at: float) -> Iterator[Job]:
        """Those that have been there for long enough, fit, and may be worth a move."""
        fitting = dict[tuple[int, int], bool]()
        for job in self._jobs.values():
            began_at, shape = job.began_at or 0.0, (job.gpus_per_node, job.pods)
            if began_at > soonest:
                self.steady_until = min(self.steady_until, at + began_at - soonest)  # the others began later
                return
            if shape not in fitting:
                fitting[shape] = home.room.fits(*shape)
            if fitting[shape]:
                stays_until = self._stays_until.get((home.place, job.index), at)
                if stays_until > at:
                    self.steady_until = min(self.steady_until, stays_until)
                else:
                    yield job

    def _stay(self, jobs: Iterable[Job], home: Pool, at: float) -> None:
        """None was worth a move there, nor will be: ever less is left of them, until it is more than was said."""
        for job in jobs:
            expected = job.expected
            if expected is None or self.transfers.loses:
                self.steady_until = at
            else:
                overdue_at = job.ends_at - job.works + expected.total_seconds() - ROUNDED
                self._stays_until[home.place, job.index] = overdue_at
                self.steady_until = min(self.steady_until, max(at, overdue_at))

    def _run(self, job: Job, home: Pool, at: float) -> BoughtRun:
        assert job.pool is not None
        taken = len(job.nodes) * job.pool.gpus_per_node - sum(node.free for node in job.nodes)
        return BoughtRun(
            run=str(job.index),
            gpus_per_node=job.gpus_per_node,
            nodes=job.pods,
            since=self.world.moment(job.began_at or 0.0),
            trained=timedelta(seconds=job.works - max(0.0, job.ends_at - at)),
            expected=job.expected,
            neighbours=taken - job.gpus,
            facts=self.transfers.move(job, home, at),
        )
