"""What a replay gives, and the figures by which policies are compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

import numpy as np

from spillway.replay.steps import HOUR, Counts, Seconds, Steps, held_together

FLAP_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where jobs run: on-premises, or a pool of a cloud."""

    name: str
    cloud: bool
    price_per_gpu_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stays:
    """Each stretch of time in which a job held its GPUs at one place, whether it got on or not; shapes (n,).

    ``job`` and ``place`` are positions in ``ReplayResult.submitted`` and ``ReplayResult.places``. Stays of a job follow
    each other in time; ``end`` is when the replay ended for those that went on.
    """

    job: Counts
    place: Counts
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orders:
    """Each change of how many nodes a place is to have, by time; ``nodes`` is the difference. Shapes (n,)."""

    at: Seconds
    place: Counts
    nodes: Counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interruptions:
    """Each time that a run lost its nodes, by time; ``lost`` is how many seconds it had trained for nothing.

    Shapes (n,); ``job`` is as in ``Stays``.
    """

    at: Seconds
    job: Counts
    lost: Seconds


NO_INTERRUPTIONS = Interruptions(at=np.zeros(0), job=np.zeros(0, dtype=np.int64), lost=np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayResult:
    """One trace under one policy. All moments are seconds after ``starts_at``.

    Figures are of ``measured``, a half-open span: of the jobs that were submitted in it, and the GPU-hours within it.

    Args:
        submitted: moments, shape (jobs,), rising.
        gpus: of each job, shape (jobs,).
        started: the first start of each, NaN where it never had its GPUs; shape (jobs,).
        ended: NaN where it had not ended when the replay did; shape (jobs,).
        over_at: when the replay ended.
        capacity: of each place, the GPUs that are paid for: from when their nodes are ordered until they are gone.
    """

    trace: str
    policy: str
    starts_at: datetime
    measured: tuple[float, float]
    submitted: Seconds
    gpus: Counts
    started: Seconds
    ended: Seconds
    places: tuple[Place, ...]
    stays: Stays
    capacity: tuple[Steps, ...]
    orders: Orders
    interruptions: Interruptions = NO_INTERRUPTIONS
    over_at: float = 0.0

    def used(self, place: int) -> Steps:
        """GPUs of a place that jobs hold."""
        here = self.stays.place == place
        return held_together(self.stays.start[here], self.stays.end[here], self.gpus[self.stays.job[here]])

    def wanted(self) -> Steps:
        """GPUs of the jobs that run or wait."""
        ended = np.where(np.isnan(self.ended), max(self.measured[1], self.last), self.ended)
        return held_together(self.submitted, ended, self.gpus)

    @property
    def last(self) -> float:
        """The last moment that anything is known of."""
        known = [moments[np.isfinite(moments)] for moments in (self.submitted, self.ended, self.stays.end)]
        return max(self.over_at, max((float(at.max()) for at in known if at.size), default=self.measured[1]))

    def waits(self) -> Seconds:
        """How long each measured job waited for its first start, in seconds; those that still wait, until the end."""
        inside = self.measured_jobs()
        started = np.where(np.isnan(self.started), self.last, self.started)
        return np.asarray((started - self.submitted)[inside])

    def measured_jobs(self) -> Counts:
        """Positions of the jobs that figures are of."""
        begins, ends = self.measured
        return np.flatnonzero((self.submitted >= begins) & (self.submitted < ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A policy in numbers. What cannot be told is None: a rate of nothing, a mean of no job.

    ``unstarted`` and ``unfinished`` jobs were so when the replay ended: their waits count as long as they are known,
    and the response is that of the jobs that ended. Idle is of the cloud's GPU-hours that are paid for, boots among
    them. A flap is an order of nodes within half an hour of giving some back. ``lost_gpu_hours`` are those for which
    runs trained that were interrupted before they had committed it.
    """

    policy: str
    jobs: int
    unstarted: int
    unfinished: int
    wait_mean_minutes: float | None
    wait_p50_minutes: float | None
    wait_p95_minutes: float | None
    wait_p99_minutes: float | None
    response_mean_hours: float | None
    cloud_gpu_hours_paid: float
    cloud_gpu_hours_used: float
    cloud_idle: float | None
    local_utilisation: float | None
    cloud_cost: Decimal
    local_cost: Decimal
    moves: int
    flaps: int
    interruptions: int
    lost_gpu_hours: float

    @property
    def cloud_utilisation(self) -> float | None:
        """The part of the cloud's paid GPU-hours that jobs used."""
        return None if self.cloud_idle is None else 1 - self.cloud_idle


def figures(result: ReplayResult) -> Figures:
    """The figures of a replay."""
    begins, ends = result.measured
    jobs, waits = result.measured_jobs(), result.waits() / 60.0
    response = (result.ended - result.submitted)[jobs] / HOUR
    response = response[np.isfinite(response)]
    paid = [steps.gpu_hours(begins, ends) for steps in result.capacity]
    used = [result.used(place).gpu_hours(begins, ends) for place in range(len(result.places))]
    cloud = [at for at, place in enumerate(result.places) if place.cloud]
    local = [at for at, place in enumerate(result.places) if not place.cloud]
    cloud_paid, cloud_used = sum(paid[at] for at in cloud), sum(used[at] for at in cloud)
    lost = result.interruptions.lost * result.gpus[result.interruptions.job] / HOUR
    interrupted = (result.interruptions.at >= begins) & (result.interruptions.at < ends)
    local_paid, local_used = sum(paid[at] for at in local), sum(used[at] for at in local)
    p50, p95, p99 = np.percentile(waits, [50, 95, 99]).tolist() if jobs.size else (None, None, None)
    return Figures(
        policy=result.policy,
        jobs=int(jobs.size),
        unstarted=int(np.isnan(result.started[jobs]).sum()),
        unfinished=int(np.isnan(result.ended[jobs]).sum()),
        wait_mean_minutes=float(waits.mean()) if jobs.size else None,
        wait_p50_minutes=p50,
        wait_p95_minutes=p95,
        wait_p99_minutes=p99,
        response_mean_hours=float(response.mean()) if response.size else None,
        cloud_gpu_hours_paid=cloud_paid,
        cloud_gpu_hours_used=cloud_used,
        cloud_idle=1 - cloud_used / cloud_paid if cloud_paid else None,
        local_utilisation=local_used / local_paid if local_paid else None,
        cloud_cost=_cost(result, paid, cloud),
        local_cost=_cost(result, paid, local),
        moves=_moves(result),
        flaps=_flaps(result.orders, begins, ends),
        interruptions=int(interrupted.sum()),
        lost_gpu_hours=float(lost[interrupted].sum()),
    )


def _cost(result: ReplayResult, gpu_hours: list[float], places: list[int]) -> Decimal:
    costs = (Decimal(gpu_hours[at]) * result.places[at].price_per_gpu_hour for at in places)
    return sum(costs, Decimal()).quantize(Decimal("0.01"))


def _moves(result: ReplayResult) -> int:
    """Stays that follow one of the same job at another place."""
    stays = result.stays
    order = np.lexsort((stays.start, stays.job))
    job, place, start = stays.job[order], stays.place[order], stays.start[order]
    begins, ends = result.measured
    moved = (job[1:] == job[:-1]) & (place[1:] != place[:-1]) & (start[1:] >= begins) & (start[1:] < ends)
    return int(moved.sum())


def _flaps(orders: Orders, begins: float, ends: float) -> int:
    flaps = 0
    given_back: dict[int, float] = {}
    for at, place, nodes in zip(orders.at.tolist(), orders.place.tolist(), orders.nodes.tolist(), strict=True):
        if nodes < 0:
            given_back[place] = at
        elif begins <= at < ends and at - given_back.get(place, -np.inf) < FLAP_SECONDS:
            flaps += 1
    return flaps
