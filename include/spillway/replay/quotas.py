"""What departments have of each kind of site in a replay, where the policy's quotas count."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from spillway.model import PlacementPolicy, Reservation, SiteKind
from spillway.quota import department_gpus
from spillway.replay.jobs import Job
from spillway.replay.pools import Pool
from spillway.replay.world import World, usual_billing


class Quotas:
    """The GPUs that departments hold, by which the live rule lets a job begin or wait."""

    def __init__(self, world: World, policy: PlacementPolicy) -> None:
        self.borrowing = policy.borrowing
        self._gpus = {kind: department_gpus(policy.quotas, world.clusters, kind) for kind in SiteKind}
        self._used: Mapping[SiteKind, dict[str, Decimal]] = {kind: {} for kind in SiteKind}
        self._held: dict[int, tuple[Job, Pool]] = {}
        self._answers: dict[tuple[str, int, bool], tuple[bool, ...]] = {}

    @classmethod
    def of(cls, world: World, policy: PlacementPolicy) -> Quotas | None:
        """None where a single department may use everything."""
        shares = policy.quotas.values()
        whole = len(shares) < 2 and all(share.onprem >= 1 and share.cloud >= 1 for share in shares)
        return None if whole else cls(world, policy)

    def took(self, job: Job, pool: Pool) -> None:
        """The job holds GPUs of the pool from now on."""
        self._held[job.index] = job, pool
        self._change(job, pool, job.gpus)

    def gave(self, job: Job, pool: Pool) -> None:
        """It holds them no longer."""
        del self._held[job.index]
        self._change(job, pool, -job.gpus)

    def allow(self, job: Job) -> tuple[bool, ...]:
        """Whether its department may have so many GPUs more, by kind of site: all that a decision depends on."""
        key = (job.spec.department, job.gpus, self.borrowing and job.spec.spot_ok)
        if key not in self._answers:
            department, gpus, borrowing = key
            self._answers[key] = tuple(
                gpus <= own.available(department, self._used[kind], borrowing=borrowing)
                for kind, own in self._gpus.items()
            )
        return self._answers[key]

    def reservations(self) -> tuple[Reservation, ...]:
        """What is held, as a snapshot has it."""
        return tuple(
            Reservation(
                attempt=str(job.index),
                department=job.spec.department,
                cluster=pool.cluster.name,
                pool=pool.declared.name,
                billing=usual_billing(pool),
                gpus_per_node=job.gpus_per_node,
                nodes=job.pods,
            )
            for job, pool in self._held.values()
        )

    def _change(self, job: Job, pool: Pool, gpus: int) -> None:
        used, department = self._used[pool.cluster.kind], job.spec.department
        used[department] = used.get(department, Decimal(0)) + gpus
        self._answers.clear()
