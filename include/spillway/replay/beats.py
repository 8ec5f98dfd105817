"""What the live scaler makes of a replay at a beat of its clock, by what it may know of it then."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from operator import is_

from spillway.model import Ending, PendingJob, PoolTarget, PoolUse, ScalingSnapshot, Source
from spillway.replay.foreseeing import Foreseeing
from spillway.replay.jobs import Job
from spillway.replay.measured import Measured
from spillway.replay.pools import Pool
from spillway.replay.waiting import Waiting
from spillway.replay.world import ROUNDED, World
from spillway.scaling.planner import plan_scaling
from spillway.scaling.rules import QueueRule, ScalingRules, StepRule, UtilisationRule
from spillway.scaling.steady import steady_until
from spillway.scaling.timed import began_at, next_change

_MEASURED = 3600.0


class Scaler:
    """The live plan, with what it is told of the past: how busy both sides were, and when pools grew and shrank.

    ``measures``: its rules look at how busy they are, so that it has to look even while nothing happens. ``woken``:
    something else may be foreseen, or asked for by the calendar, than when it looked last. ``steady_until``: as
    long as nothing happens before, it changes nothing.
    """

    def __init__(
        self, world: World, waiting: Waiting, rules: ScalingRules, foreseeing: Foreseeing | None, tick: float
    ) -> None:
        self.world, self.waiting, self.rules, self.foreseeing = world, waiting, rules, foreseeing
        self.woken = False
        self.steady_until = 0.0
        self._uses: Sequence[PoolUse] = ()
        self._queue: Sequence[PendingJob] = ()
        self.measures = not isinstance(rules.reactive, QueueRule)
        self._within = rules.reactive.within.total_seconds() if isinstance(rules.reactive, QueueRule) else 0.0
        lasting = _MEASURED if self.measures else 0.0
        local, cloud = isinstance(rules.reactive, StepRule), isinstance(rules.reactive, UtilisationRule)
        local = local or foreseeing is not None  # the plan looks at no other points
        measured = Measured(world, waiting, local=local, cloud=cloud, tick=tick, lasting=lasting)
        self._measured = measured if local or cloud else None
        self._last_out: dict[tuple[str, str], datetime] = {}
        self._last_in: dict[tuple[str, str], datetime] = {}
        self._window_began_at: datetime | None = None
        self._base: Mapping[tuple[str, str], int] = {}
        self._endings: list[tuple[float, int, int, Job]] = []

    @property
    def by_the_clock(self) -> bool:
        """Whether more or less may be wanted though nothing has happened."""
        return self.foreseeing is not None or self.rules.window is not None

    def changes_after(self, at: float) -> float:
        """When that is next; only where it may be."""
        moments = [] if self.foreseeing is None else [self.foreseeing.changes_after(at)]
        if self.rules.window is not None:
            change = next_change(self.rules.window, self.world.moment(at))
            moments.append((change - self.world.starts_at).total_seconds())
        return min(moments)

    def plan(self, at: float) -> Sequence[PoolTarget]:
        """How many nodes each pool of a cloud is to have; nothing where that is known to be what it has."""
        if self._measured is not None:
            self._measured.look(at)
        uses = [pool.use(self.world.starts_at) for pool in self.world.cloud]
        queue = self.waiting.pending(at)
        steady = at < self.steady_until - ROUNDED and not self.woken
        if steady and _same(uses, self._uses) and _same(queue, self._queue):
            return ()
        self._uses, self._queue = uses, queue
        snapshot = self._snapshot(at)
        forecasts = {} if self.foreseeing is None else self.foreseeing.at(at)
        targets = plan_scaling(snapshot, forecasts, self.rules)
        self.woken = any(_wants_more(target) for target in targets) if self.rules.forecast is not None else False
        self.steady_until = self._steady(snapshot, targets)
        return targets

    def changed(self, pool: Pool, grew: bool, at: float) -> None:
        """The pool has as many nodes as were wanted."""
        (self._last_out if grew else self._last_in)[pool.key] = self.world.moment(at)

    def began(self, job: Job, at: float) -> None:
        """It trains on-premises from then on, and says when it ends if it can."""
        expected = job.expected
        if self._within and expected is not None:
            left = max(0.0, expected.total_seconds() - job.works + job.left)
            insort(self._endings, (at + left, job.index, job.serial, job))

    def _snapshot(self, at: float) -> ScalingSnapshot:
        local, cloud = ((), ()) if self._measured is None else self._measured.points(at)
        return ScalingSnapshot(
            taken_at=self.world.moment(at),
            pools=tuple(self._uses),
            local=local,
            cloud=cloud,
            queue=tuple(self._queue),
            endings=tuple(self._foreseen(at)) if self._queue else (),
            last_out=dict(self._last_out),
            last_in=dict(self._last_in),
            base_nodes={} if self.rules.window is None else self._base_nodes(at),
        )

    def _base_nodes(self, at: float) -> Mapping[tuple[str, str], int]:
        """How many nodes the pools were to have when those of the window of now were first asked for."""
        began = began_at(self.rules, self.world.moment(at))
        if began != self._window_began_at:
            self._window_began_at = began
            self._base = {} if began is None else {pool.key: pool.wanted for pool in self.world.cloud}
        return self._base

    def _steady(self, snapshot: ScalingSnapshot, targets: Sequence[PoolTarget]) -> float:
        """Until when the plan changes nothing, if it does not now."""
        wanted = {(use.cluster, use.pool.name): use.wanted for use in snapshot.pools}
        if self.woken or any(one.remove or one.nodes != wanted[one.cluster, one.pool] for one in targets):
            return 0.0
        until = steady_until(snapshot, self.rules)
        return inf if until is None else (until - self.world.starts_at).total_seconds()

    def _foreseen(self, now: float) -> Iterator[Ending]:
        """The ends that the rule looks at."""
        del self._endings[: bisect_left(self._endings, (now,))]
        for at, _, serial, job in self._endings:
            if at > now + self._within:
                return
            if job.serial == serial and job.pool is not None:
                yield Ending(
                    at=self.world.moment(at), place=job.pool.key, gpus_per_node=job.gpus_per_node, nodes=job.pods
                )


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether they are the same objects: what has changed is a new one."""
    return len(some) == len(others) and all(map(is_, some, others))


def _wants_more(target: PoolTarget) -> bool:
    """Whether more was foreseen for the pool than it gets now, as while it cools down."""
    return any(wish.source is Source.FORECAST and wish.nodes > target.nodes for wish in target.contributions)
