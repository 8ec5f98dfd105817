"""Where a job of a replay goes, by the live ``choose``.

What that says depends on a job's kind, on whether it waits for on-premises, on which pools have room for it, and where
quotas count on the sites at which its department may have so many GPUs more; on nothing else of the simulated clusters:
they have no budgets, off-peak hours or lost places. So each of these cases is decided once, from a whole snapshot of
the moment when it first comes up.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from spillway.model import PlacementDecision, PlacementPolicy
from spillway.placement.context import index
from spillway.placement.policy import choose
from spillway.replay.data import Transfers
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.quotas import Quotas
from spillway.replay.world import World


class Decisions:
    """Decisions of one policy."""

    def __init__(
        self, world: World, policy: PlacementPolicy, transfers: Transfers, quotas: Quotas | None = None
    ) -> None:
        self.world, self.policy, self.transfers, self.quotas = world, policy, transfers, quotas
        self._known: dict[Hashable, PlacementDecision] = {}

    def choose(self, job: Job, held: bool, at: float) -> Pool | None:
        """The pool where the job begins now, if any."""
        chosen = self._decision(job, held, at).chosen
        return None if chosen is None else self.world.by_key[chosen.cluster, chosen.pool]

    def possible(self, job: Job, held: bool, at: float) -> bool:
        """Whether any pool ever takes the job."""
        return self._decision(job, held, at).possible

    def queues_at(self, job: Job, held: bool, at: float) -> frozenset[tuple[str, str]]:
        """The pools where the job lacks nothing but room."""
        return self._decision(job, held, at).queues_at

    def _decision(self, job: Job, held: bool, at: float) -> PlacementDecision:
        shape, verdicts = job.shape, 0
        for pool in self.world.pools:
            verdict = pool.verdicts.get(shape)
            verdicts = 3 * verdicts + (pool.verdict(shape) if verdict is None else verdict)
        case: Hashable = (job.kind, held, verdicts)
        if self.quotas is not None:
            case = (case, self.quotas.allow(job))
        known = self._known.get(case)
        if known is None:
            # A job that holds no longer has waited: for whoever did not wait that is the same.
            snapshot = self.world.snapshot(at, self.world.moment(job.asked_at))
            snapshot = snapshot if held else replace(snapshot, waits_since=None)
            if job.spec.datasets:
                there = self.transfers.datasets_present(job)
                snapshot = replace(snapshot, datasets=self.transfers.datasets(job), datasets_present=there)
            if self.quotas is not None:
                snapshot = replace(snapshot, reservations=self.quotas.reservations())
            known = self._known[case] = choose(job.spec, index(snapshot, self.policy))
        return known
