"""A replay: recorded jobs through the live ``choose`` and ``plan_scaling``, over simulated clusters.

It goes from event to event: a job is asked for, ends, or has waited for on-premises long enough; a node is ready. The
scaler, and what goes back to on-premises, are looked at on the beats of a clock, while there is anything to look at.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from spillway.model import Cluster, JobRecord, PlacementPolicy, PoolTarget
from spillway.replay.beats import Scaler
from spillway.replay.bought import Bought
from spillway.replay.clock import NEVER, Clock
from spillway.replay.data import Transfers
from spillway.replay.decisions import Decisions
from spillway.replay.foreseeing import Foreseeing
from spillway.replay.garbage import uncollected
from spillway.replay.jobs import Job, jobs_of
from spillway.replay.metrics import ReplayResult
from spillway.replay.pools import Node, Pool
from spillway.replay.quotas import Quotas
from spillway.replay.recording import Recording
from spillway.replay.steps import HOUR
from spillway.replay.waiting import Waiting
from spillway.replay.world import Conditions, World
from spillway.scaling.rules import ScalingRules

_FRUITLESS = 100
"""So often in a row a run is interrupted before it commits anything; then it is taken never to end."""
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
    with uncollected():
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
        self.conditions, self.progress = conditions, progress
        self.chance, self.clock = random.Random(seed), Clock(conditions.tick.total_seconds())
        self.world = World(clusters, records[0].submitted_at)
        self.jobs = jobs_of(records, policy.placement, conditions)
        self.transfers = Transfers(self.world, conditions)
        self.quotas = Quotas.of(self.world, policy.placement)
        self.decisions = Decisions(self.world, policy.placement, self.transfers, self.quotas)
        self.waiting = Waiting(self.world, self.decisions)
        rule, clocks = policy.scaling.forecast, policy.placement.time_zone
        self.foreseeing = None if rule is None else Foreseeing(rule, records, time_zone=clocks)
        self.scaler = Scaler(self.world, self.waiting, policy.scaling, self.foreseeing, self.clock.tick)
        self.bought = Bought(self.world, policy.scaling.returning, self.transfers)
        self.recording = Recording(self.world)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.serial = 0
        self.now = self.stirred = 0.0
        self.ended = 0
        if self.scaler.by_the_clock:
            self._at(self.scaler.changes_after(0.0), self._wake)
        for key, zone in sorted(conditions.spot.items()):
            self._turn(self.world.by_key[key], zone.stretches(random.Random(f"{seed}:{'/'.join(key)}")))

    def carry_out(self) -> None:
        """Moment by moment: all that happens then, after which what waits is placed, and last the beat of the clock."""
        arrivals = iter(self.jobs)
        coming = next(arrivals, None)
        while coming is not None or (self.ended < len(self.jobs) and self._goes_on()):
            asked_at = NEVER if coming is None else coming.asked_at
            self.now = now = min(asked_at, self.events[0][0] if self.events else NEVER, self.clock.looks_at)
            if now == NEVER:
                return
            while coming is not None and coming.asked_at == now:
                self._ask(coming)
                coming = next(arrivals, None)
            while self.events and self.events[0][0] == now:
                heapq.heappop(self.events)[2]()
            self._place()
            self._keep_time()

    def _keep_time(self) -> None:
        """The beat of now, if there is one, and when the next one is that may change anything."""
        steady_until = self._beat() if self.clock.beats(self.now) else 0.0
        if self.clock.beat_at == NEVER and self._awaits_beat():
            self.clock.start(self.now)
        if steady_until and not self._more_to_come():
            steady_until = min(steady_until, self.stirred + _STILL)
        self.clock.pass_over(steady_until)

    def _goes_on(self) -> bool:
        """Whether more than beats is to come, or something has happened lately."""
        return self._more_to_come() or self.now - self.stirred < _STILL

    def _more_to_come(self) -> bool:
        """Whether more than the clock is to come, such as the end of a job."""
        return len(self.events) > self.scaler.by_the_clock + len(self.conditions.spot)

    def _at(self, moment: float, happen: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.events, (moment, self.serial, happen))

    def _place(self) -> None:
        while self.waiting.jobs and (found := self.waiting.next(self.now)) is not None:
            self._start(*found)

    def _awaits_beat(self) -> bool:
        """Whether there is anything to look at with the next one."""
        if self.waiting.jobs or self.scaler.measures or self.scaler.woken or self.bought.may_return:
            return True
        return any(pool.idle for pool in self.world.cloud)

    def _ask(self, job: Job) -> None:
        self.stirred = self.now
        held = job.hold_until is not None and job.hold_until > self.now
        if not self.decisions.possible(job, held, self.now):
            self.ended += 1
            return
        if self.foreseeing is not None:
            self.foreseeing.asked(job)
        if held:
            self._at(job.hold_until or 0.0, partial(self._open, job))
        self.waiting.add(job, held)

    def _wake(self) -> None:
        """Something else may be wanted from now on, so the scaler looks even where nothing happens."""
        self.scaler.woken = True
        self._at(self.scaler.changes_after(self.now), self._wake)

    def _open(self, job: Job) -> None:
        """It has waited for on-premises long enough."""
        if job.began_at is None:
            self.waiting.open(job)

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

    def _start(self, job: Job, pool: Pool, pause: float = 0.0) -> None:
        job.nodes = pool.take(job.index, job.gpus_per_node, job.pods)
        job.pool, job.began_at, job.serial = pool, self.now, job.serial + 1
        if job.started_at is None:
            job.started_at = self.now
        if job.dataset_bytes:
            pause += self.transfers.stage(job, pool)
        job.trains_at, job.restart = self.now + pause + job.restart, 0.0
        job.ends_at = job.trains_at + job.left
        self._at(job.ends_at, partial(self._end, job, job.serial))
        if self.quotas is not None:
            self.quotas.took(job, pool)
        if pool.bought:
            self.bought.began(job)
        else:
            self.scaler.began(job, job.trains_at)

    def _leave(self, job: Job) -> None:
        assert job.pool is not None and job.began_at is not None
        job.pool.give(job.index, job.nodes, self.now)
        self.recording.stay(job.index, job.pool.place, job.began_at, self.now)
        self.bought.left(job)
        if self.quotas is not None:
            self.quotas.gave(job, job.pool)
        job.left = max(0.0, job.ends_at - self.now)
        job.pool = None

    def _beat(self) -> float:
        """What the live rules send back goes to on-premises, and loses what the move takes; then the scaler looks.

        Returns:
            Until when beats change nothing, unless something else happens before.
        """
        steady_until, moved = NEVER, False
        if self.bought.may_return:
            for home in self.world.local:
                for job in self.bought.returning(home, self.now):
                    pause = self.transfers.pause(job, home, self.now)
                    self._leave(job)
                    self._start(job, home, pause)
                    moved = True
                steady_until = min(steady_until, self.bought.steady_until)
        for target in self.scaler.plan(self.now):
            self._apply(self.world.by_key[target.cluster, target.pool], target)
        if moved:
            self._place()
        return 0.0 if moved else min(steady_until, self.scaler.steady_until)

    def _apply(self, pool: Pool, target: PoolTarget) -> None:
        before = pool.wanted
        for name in target.remove:
            pool.remove(name)
        self._order(pool, target.nodes - pool.wanted)
        if pool.wanted != before:
            self.scaler.changed(pool, pool.wanted > before, self.now)
            self.recording.order(self.now, pool.place, pool.wanted - before, len(pool.nodes) * pool.gpus_per_node)

    def _order(self, pool: Pool, more: int) -> None:
        """So many nodes boot from now on, or as soon as there are any; of orders that got none yet, so many fewer."""
        if pool.sold_out or more < 0:
            pool.unanswered = max(0, pool.unanswered + more)
            return
        least, most = (bound.total_seconds() for bound in self.conditions.boot)
        for _ in range(more):
            ready_at = self.now + self.chance.uniform(least, most)
            self._at(ready_at, partial(self._ready, pool, pool.order(self.now)))

    def _turn(self, pool: Pool, stretches: Iterator[tuple[bool, float]]) -> None:
        """The pool's zone has spot from now on, or none, until it turns again."""
        there, hours = next(stretches)
        self._at(self.now + hours * HOUR, partial(self._turn, pool, stretches))
        if there:
            pool.sold_out, waited_for, pool.unanswered = False, pool.unanswered, 0
            self._order(pool, waited_for)
        else:
            for run in sorted({run for node in pool.nodes.values() for run in node.runs}):
                self._interrupt(self.jobs[run])
            pool.sell_out()
        self.recording.size(self.now, pool.place, len(pool.nodes) * pool.gpus_per_node)

    def _interrupt(self, job: Job) -> None:
        """It loses its nodes, and what it has trained since it last committed, and waits again."""
        trained, left = max(0.0, self.now - job.trains_at), job.left
        lost = trained % self.conditions.checkpoint_every.total_seconds()
        self._leave(job)
        job.left, job.serial = left - (trained - lost), job.serial + 1
        job.restart = self.transfers.restart()
        job.fruitless = job.fruitless + 1 if lost == trained else 0
        self.recording.interruption(self.now, job.index, lost)
        if job.fruitless < _FRUITLESS:
            self.waiting.add(job, held=False)
        else:
            self.ended += 1
