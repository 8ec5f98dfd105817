"""A replay: recorded jobs through the live ``choose`` and ``plan_scaling``, over simulated clusters.

It goes from event to event: a job is asked for, ends, or has waited for on-premises long enough; a node is ready. The
scaler, and what goes back to on-premises, are looked at on the beats of a clock, while there is anything to look at.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from spillway.model import (
    Cluster,
    Ending,
    JobRecord,
    PendingJob,
    PlacementPolicy,
    PoolTarget,
    ScalingSnapshot,
    UsePoint,
)
from spillway.replay.decisions import Decisions
from spillway.replay.jobs import Job, jobs_of
from spillway.replay.metrics import ReplayResult
from spillway.replay.pools import Node, Pool
from spillway.replay.recording import Recording
from spillway.replay.world import Conditions, World, usual_price
from spillway.scaling.planner import plan_scaling
from spillway.scaling.returning import BoughtRun, plan_returns
from spillway.scaling.rules import QueueRule, ScalingRules

_MEASURED = timedelta(hours=1)
_STILL = 7 * 86400.0
"""Seconds of nothing but beats, with nothing else to come, after which what waits is taken to wait for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is compared: how jobs are placed, and how nodes come and go."""

    name: str
    placement: PlacementPolicy
    scaling: ScalingRules


def replay(
    trace: str,
    records: Sequence[JobRecord],
    clusters: Sequence[Cluster],
    policy: Policy,
    *,
    conditions: Conditions,
    seed: int = 1,
    measured: tuple[float, float] | None = None,
    progress: Callable[[int], None] = lambda ended: None,
) -> ReplayResult:
    """One trace under one policy; equal inputs give an equal result.

    Args:
        records: by submission, each with a duration.
        measured: what figures are of, in seconds after the first submission; None: all of it.
        progress: is told how many jobs have ended, now and then.
    """
    placement = replace(policy.placement, waiting=policy.scaling.waiting)
    run = _Replay(records, clusters, replace(policy, placement=placement), conditions, seed, progress)
    run.carry_out()
    return run.recording.result(trace, policy.name, run.jobs, run.world, measured, run.now)


class _Replay:
    def __init__(
        self,
        records: Sequence[JobRecord],
        clusters: Sequence[Cluster],
        policy: Policy,
        conditions: Conditions,
        seed: int,
        progress: Callable[[int], None],
    ) -> None:
        self.policy, self.conditions, self.progress = policy, conditions, progress
        self.chance = random.Random(seed)
        self.world = World(clusters, records[0].submitted_at)
        self.jobs = jobs_of(records, policy.placement)
        self.decisions = Decisions(self.world, policy.placement)
        self.recording = Recording(self.world)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.serial = 0
        self.now = self.stirred = 0.0
        self.beat_at: float | None = None
        self.waiting: dict[tuple[object, bool], deque[Job]] = {}
        self.bought: dict[int, Job] = {}
        self.ended = 0
        self.local_points: deque[UsePoint] = deque()
        self.cloud_points: deque[UsePoint] = deque()
        self.last_out: dict[tuple[str, str], object] = {}
        self.last_in: dict[tuple[str, str], object] = {}
        reactive = policy.scaling.reactive
        self.within = reactive.within.total_seconds() if isinstance(reactive, QueueRule) else 0.0
        self.endings: list[tuple[float, int, int]] = []
        self.measures = not isinstance(policy.scaling.reactive, QueueRule)
        self.tick = conditions.tick.total_seconds()

    def carry_out(self) -> None:
        arrivals = iter(self.jobs)
        coming = next(arrivals, None)
        while coming is not None or (self.ended < len(self.jobs) and self._goes_on()):
            if coming is not None and (not self.events or coming.asked_at <= self.events[0][0]):
                self.now = coming.asked_at
                self._ask(coming)
                coming = next(arrivals, None)
            elif self.events:
                self.now, _, happen = heapq.heappop(self.events)
                happen()
            else:
                return
            if (self.events and self.events[0][0] == self.now) or (coming and coming.asked_at == self.now):
                continue
            self._place()
            if self.beat_at is None and self._awaits_beat():
                self.beat_at = (self.now // self.tick + 1) * self.tick
                self._at(self.beat_at, self._beat)

    def _goes_on(self) -> bool:
        """Whether more than beats is to come, such as the end of a job, or something has happened lately."""
        return len(self.events) > (self.beat_at is not None) or self.now - self.stirred < _STILL

    def _at(self, moment: float, happen: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.events, (moment, self.serial, happen))

    def _awaits_beat(self) -> bool:
        """Whether there is anything to look at with the next one."""
        if self.waiting or self.measures or any(pool.idle for pool in self.world.cloud):
            return True
        return self.policy.scaling.returning is not None and bool(self.bought)

    def _ask(self, job: Job) -> None:
        self.stirred = self.now
        held = job.hold_until is not None and job.hold_until > self.now
        if not self.decisions.possible(job, held, self.now):
            self.ended += 1
            return
        if held:
            self._at(job.hold_until or 0.0, partial(self._open, job))
        self.waiting.setdefault((job.kind, held), deque()).append(job)

    def _end(self, job: Job, serial: int) -> None:
        if job.serial != serial:
            return
        self.stirred = self.now
        self._leave(job)
        job.ended_at = self.now
        self.ended += 1
        if self.ended % 1000 == 0:
            self.progress(self.ended)

    def _ready(self, pool: Pool, node: Node) -> None:
        if pool.nodes.get(node.name) is node:
            self.stirred = self.now
            pool.ready(node, self.now)

    def _open(self, job: Job) -> None:
        """It has waited for on-premises long enough."""
        if job.began_at is not None:
            return
        held = self.waiting[job.kind, True]
        held.remove(job)
        if not held:
            del self.waiting[job.kind, True]
        line = self.waiting.setdefault((job.kind, False), deque())
        line.append(job)
        if len(line) > 1 and line[-2].turn > job.turn:
            self.waiting[job.kind, False] = deque(sorted(line, key=lambda one: one.turn))

    def _place(self) -> None:
        """Whatever waits gets a place that the policy chooses for it, the first first."""
        while self.waiting:
            first: tuple[Job, Pool, tuple[object, bool]] | None = None
            for key, line in self.waiting.items():
                if first is not None and first[0].turn < line[0].turn:
                    continue
                pool = self.decisions.choose(line[0], key[1], self.now)
                if pool is not None:
                    first = line[0], pool, key
            if first is None:
                break
            job, pool, key = first
            self.waiting[key].popleft()
            if not self.waiting[key]:
                del self.waiting[key]
            self._start(job, pool)

    def _start(self, job: Job, pool: Pool, pause: float = 0.0) -> None:
        job.nodes = pool.take(job.index, job.gpus_per_node, job.pods)
        job.pool, job.began_at, job.serial = pool, self.now, job.serial + 1
        if job.started_at is None:
            job.started_at = self.now
        job.ends_at = self.now + pause + job.left
        self._at(job.ends_at, partial(self._end, job, job.serial))
        if pool in self.world.cloud:
            self.bought[job.index] = job
        elif self.within and job.spec.expected_duration is not None:
            left = max(0.0, job.spec.expected_duration.total_seconds() - job.works + job.left)
            insort(self.endings, (self.now + pause + left, job.index, job.serial))

    def _leave(self, job: Job) -> None:
        assert job.pool is not None and job.began_at is not None
        job.pool.give(job.index, job.nodes, self.now)
        self.recording.stay(job.index, job.pool.place, job.began_at, self.now)
        self.bought.pop(job.index, None)
        job.left = max(0.0, job.ends_at - self.now)
        job.pool = None

    def _beat(self) -> None:
        self.beat_at = None
        if self.policy.scaling.returning is not None and self.bought:
            self._bring_back()
        targets = plan_scaling(self._snapshot(), {}, self.policy.scaling)
        for target in targets:
            self._apply(self.world.by_key[target.cluster, target.pool], target)

    def _bring_back(self) -> None:
        """What the live rule sends back to on-premises goes there, and loses what the move takes."""
        rules, now = self.policy.scaling.returning, self.world.moment(self.now)
        assert rules is not None
        for home in self.world.local:
            if not home.room.total:
                continue
            soonest = self.now - rules.after.total_seconds()
            runs = [
                self._bought_run(job)
                for job in self.bought.values()
                if (job.began_at or 0.0) <= soonest and home.room.fits(job.gpus_per_node, job.pods)
            ]
            for back in plan_returns(runs, home.room, rules, now) if runs else ():
                job = self.jobs[int(back.run)]
                self._leave(job)
                self._start(job, home, pause=self.recording.pause(self.conditions.move))

    def _bought_run(self, job: Job) -> BoughtRun:
        assert job.pool is not None
        here = sum(node.runs[job.index] for node in job.nodes)
        home = self.world.local[0]
        return BoughtRun(
            run=str(job.index),
            gpus_per_node=job.gpus_per_node,
            nodes=job.pods,
            since=self.world.moment(job.began_at or 0.0),
            trained=timedelta(seconds=job.works - max(0.0, job.ends_at - self.now)),
            expected=job.spec.expected_duration,
            neighbours=sum(sum(node.runs.values()) for node in job.nodes) - here,
            facts=self.decisions.move_facts(self.conditions.move, usual_price(job.pool), usual_price(home)),
        )

    def _snapshot(self) -> ScalingSnapshot:
        now = self.world.moment(self.now)
        if self.measures:
            self._measure()
        pending: list[PendingJob] = []
        for (_, held), line in self.waiting.items():
            if not held:
                places = self.decisions.queues_at(line[0], self.now)
                pending += (job.pending(places, self.world) for job in line)
        return ScalingSnapshot(
            taken_at=now,
            pools=tuple(pool.use(self.world.starts_at) for pool in self.world.cloud),
            local=tuple(self.local_points),
            cloud=tuple(self.cloud_points),
            queue=tuple(pending),
            endings=tuple(self._endings()) if pending else (),
            last_out=dict(self.last_out),  # type: ignore[arg-type]
            last_in=dict(self.last_in),  # type: ignore[arg-type]
        )

    def _endings(self) -> Iterator[Ending]:
        """Those that the rule looks at."""
        del self.endings[: bisect_left(self.endings, (self.now,))]
        for at, index, serial in self.endings:
            if at > self.now + self.within:
                return
            job = self.jobs[index]
            if job.serial == serial and job.pool is not None:
                yield Ending(
                    at=self.world.moment(at), place=job.pool.key, gpus_per_node=job.gpus_per_node, nodes=job.pods
                )

    def _measure(self) -> None:
        now = self.world.moment(self.now)
        lines = list(self.waiting.values())
        jobs, gpus = sum(map(len, lines)), sum(job.gpus for line in lines for job in line)
        for points, pools in ((self.local_points, self.world.local), (self.cloud_points, self.world.cloud)):
            ready = sum((len(pool.nodes) - pool.booting) * pool.gpus_per_node for pool in pools)
            used = sum(pool.used for pool in pools)
            points.append(UsePoint(at=now, gpus=ready, used_gpus=used, queued_jobs=jobs, pending_gpus=gpus))
            while now - points[0].at > _MEASURED:
                points.popleft()

    def _apply(self, pool: Pool, target: PoolTarget) -> None:
        before = len(pool.nodes)
        for name in target.remove:
            pool.remove(name)
        more = target.nodes - len(pool.nodes)
        least, most = (bound.total_seconds() for bound in self.conditions.boot)
        for _ in range(more):
            ready_at = self.now + self.chance.uniform(least, most)
            self._at(ready_at, partial(self._ready, pool, pool.order(self.now)))
        if len(pool.nodes) != before:
            grew = len(pool.nodes) > before
            (self.last_out if grew else self.last_in)[pool.key] = self.world.moment(self.now)
            self.recording.order(self.now, pool.place, len(pool.nodes) - before, len(pool.nodes) * pool.gpus_per_node)
