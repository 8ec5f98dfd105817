"""The runs of a replay on bought GPUs, and which of them the live rule sends back to on-premises."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from spillway.replay.data import Transfers
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.world import World
from spillway.scaling.returning import BoughtRun, ReturnRules, plan_returns


class Bought:
    """Jobs that train in a cloud, in the order in which they began there."""

    def __init__(self, world: World, rules: ReturnRules | None, transfers: Transfers) -> None:
        self.world, self.rules, self.transfers = world, rules, transfers
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
        if self.rules is None or not home.room.total:
            return
        soonest = at - self.rules.after.total_seconds()
        runs = [
            self._run(job, at)
            for job in self._jobs.values()
            if (job.began_at or 0.0) <= soonest and home.room.fits(job.gpus_per_node, job.pods)
        ]
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
