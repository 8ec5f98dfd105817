"""What the data of jobs takes in a replay: to bring it where they start, and to move them with what they committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spillway.lines import GIBIBYTE, bytes_per_second, link_between, transfer
from spillway.migration import MoveFacts, estimate
from spillway.model import DatasetFacts
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.world import Conditions, World, usual_price


class Transfers:
    """By the live formulas, over the lines as they are declared. Datasets come from the first on-premises cluster.

    ``loses``: a run that moves loses what it has trained since it last committed.
    """

    def __init__(self, world: World, conditions: Conditions) -> None:
        self.world, self.conditions = world, conditions
        self.home = world.local[0].cluster if world.local else None
        self._facts: dict[tuple[object, ...], MoveFacts] = {}
        self._pauses: dict[MoveFacts, float] = {}
        fits = estimate(replace(conditions.move, steps_at_risk=1, seconds_per_step=1.0)).pause["lost_steps"]
        self.loses = bool(fits)

    def datasets(self, job: Job) -> Mapping[str, DatasetFacts]:
        """What the job reads, where a dataset has a home."""
        if self.home is None:
            return {}
        facts = DatasetFacts(home=self.home.name, size_bytes=job.dataset_bytes)
        return {use.name: facts for use in job.spec.datasets}

    def datasets_present(self, job: Job) -> frozenset[tuple[str, str]]:
        """Where the job's data is: at home, and where it was brought."""
        there = job.staged if self.home is None else {*job.staged, self.home.name}
        return frozenset((use.name, cluster) for use in job.spec.datasets for cluster in there)

    def stage(self, job: Job, pool: Pool) -> float:
        """How many seconds its data takes to the pool's cluster, where it is from then on."""
        if self.home is None or pool.cluster.name in job.staged:
            return 0.0
        job.stage(pool.cluster.name)
        lasting = transfer(job.dataset_bytes, self.home, pool.cluster, {}).duration
        return 0.0 if lasting is None else lasting.total_seconds()

    def move(self, job: Job, home: Pool, at: float) -> MoveFacts:
        """Those of a move from where the job trains, with the prices of both places.

        What nobody says of its checkpoints is as in ``Conditions.move``. Its data is at home already.
        """
        assert job.pool is not None
        size, here, lost = job.spec.checkpoint_gib, job.pool, 0
        if self.loses:
            lost = int(max(0.0, at - job.trains_at) % self.conditions.checkpoint_every.total_seconds())
        key = (here.place, home.place, size, lost)
        known = self._facts.get(key)
        if known is None:
            known = replace(self.conditions.move, price_here=usual_price(here), price_there=usual_price(home))
            if lost:
                known = replace(known, steps_at_risk=lost, seconds_per_step=1.0)
            if size is not None:
                known = replace(
                    known,
                    checkpoint_bytes=round(size * GIBIBYTE),
                    bandwidth_bytes_per_second=bytes_per_second(link_between(here.cluster, home.cluster), {}),
                    egress_price_per_gib=here.cluster.link.egress_price_per_gib,
                )
            self._facts[key] = known
        return known

    def pause(self, job: Job, home: Pool, at: float) -> float:
        """For how many seconds the job does not train that moves there."""
        facts = self.move(job, home, at)
        if facts not in self._pauses:
            self._pauses[facts] = estimate(facts).known_pause.total_seconds()
        return self._pauses[facts]

    def restart(self) -> float:
        """How many seconds a run that was interrupted takes to train again once it has a place."""
        restart = self.conditions.move.restart
        return 0.0 if restart is None else restart.total_seconds()
