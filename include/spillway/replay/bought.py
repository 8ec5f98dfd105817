"""The runs of a replay on bought GPUs, and which of them the live rule sends back to on-premises."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from math import inf

from spillway.replay.data import Transfers
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.world import World
from spillway.scaling.returning import BoughtRun, ReturnRules, plan_returns


class Bought:
    """Jobs that train in a cloud, in the order in which they began there.

    ``steady_until``: as long as nothing happens before, the answer about the last home is the same, which is nobody.
    """

    def __init__(self, world: World, rules: ReturnRules | None, transfers: Transfers) -> None:
        self.world, self.rules, self.transfers = world, rules, transfers
        self.steady_until = inf
        self._jobs: dict[int, Job] = {}

    @property
    def may_return(self) -> bool:
        return self.rules is not None and bool(self._jobs)

    def began(self, job: Job) -> None:
        self._jobs[job.index] = job

    def left(self, job: Job) -> None:
        """It is there no longer, if it was."""
        self._jobs.pop(job.index, None)

    def returning(self, home: Pool, at: float) -> Iterator[Job]:
        """Those that go to ``home`` now, in the order in which they get its room."""
        self.steady_until = inf
        if self.rules is None or not home.room.total:
            return
        after = self.rules.after.total_seconds()
        runs, fitting = [], dict[tuple[int, int], bool]()
        for job in self._jobs.values():
            began_at, shape = job.began_at or 0.0, (job.gpus_per_node, job.pods)
            if began_at > at - after:
                self.steady_until = began_at + after  # the others began later
                break
            if shape not in fitting:
                fitting[shape] = home.room.fits(*shape)
            if fitting[shape]:
                runs.append(self._run(job, at))
        if runs:
            self.steady_until = at  # what a move saves changes as time goes by
        for back in plan_returns(runs, home.room, self.rules, self.world.moment(at)) if runs else ():
            yield self._jobs[int(back.run)]

    def _run(self, job: Job, at: float) -> BoughtRun:
        assert job.pool is not None
        here = sum(node.runs[job.index] for node in job.nodes)
        return BoughtRun(
            run=str(job.index),
            gpus_per_node=job.gpus_per_node,
            nodes=job.pods,
            since=self.world.moment(job.began_at or 0.0),
            trained=timedelta(seconds=job.works - max(0.0, job.ends_at - at)),
            expected=job.spec.expected_duration,
            neighbours=sum(sum(node.runs.values()) for node in job.nodes) - here,
            facts=self.transfers.move(job, self.world.local[0], at),
        )
