"""On a demand that does not change every preset comes to rest: no node is ordered and none leaves any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from spillway.model import Forecast, PendingJob, ScalableNode, ScalingSnapshot, UsePoint
from spillway.scaling.ahead import EVERYWHERE
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT, PRESETS, S0, S2, THRIFTY
from spillway.scaling.rules import ScalingRules
from spillway.testing.builders import NOW
from spillway.testing.elastic import MINUTE, carried_out, pending_job, pending_jobs, pool_use, scaling_snapshot

TICK = MINUTE
BOOT = 7 * MINUTE
LOCAL_GPUS = 100


class Days:
    """A cloud pool whose nodes boot, and jobs that never end by themselves and take the first node that has room."""

    def __init__(self, *jobs: PendingJob, local_used: int = LOCAL_GPUS) -> None:
        self.waiting, self.local_used = list(jobs), local_used
        self.seen, self.used = scaling_snapshot(pool_use()), dict[str, int]()
        self._named = 0

    def wanted(
        self, rules: ScalingRules, ticks: int, forecasts: Mapping[tuple[str, str], Forecast] | None = None
    ) -> list[int]:
        """How many nodes are wanted at each of so many ticks."""
        found = []
        for _ in range(ticks):
            seen = self._a_tick_later()
            self.seen = carried_out(seen, plan_scaling(seen, forecasts or {}, rules))
            found.append(self.seen.pools[0].wanted)
        return found

    def _a_tick_later(self) -> ScalingSnapshot:
        """What was ordered is there, what has booted is Ready, and jobs that fit run."""
        now, [use] = self.seen.taken_at + TICK, self.seen.pools
        nodes = list(use.nodes)
        while len(nodes) < use.wanted:
            self._named += 1
            nodes.append(ScalableNode(name=f"n{self._named:04}", created_at=now, gpus=0, free_gpus=0))
        self._start([node.name for node in nodes if now - node.created_at >= BOOT])
        nodes = [self._at(node, now) for node in nodes]
        gpus = sum(node.gpus for node in nodes)
        return replace(
            self.seen,
            taken_at=now,
            pools=(replace(use, nodes=tuple(nodes)),),
            queue=tuple(self.waiting),
            local=(*self.seen.local, _point(now, LOCAL_GPUS, self.local_used))[-61:],
            cloud=(*self.seen.cloud, _point(now, gpus, sum(self.used.values())))[-61:],
        )

    def _start(self, usable: list[str]) -> None:
        for job in tuple(self.waiting):
            fitting = [name for name in usable if 8 - self.used.get(name, 0) >= job.gpus_per_node][: job.nodes]
            if len(fitting) == job.nodes:
                self.waiting.remove(job)
                self.used |= {name: self.used.get(name, 0) + job.gpus_per_node for name in fitting}

    def _at(self, node: ScalableNode, now: datetime) -> ScalableNode:
        if now - node.created_at < BOOT:
            return node
        used = self.used.get(node.name, 0)
        return replace(
            node,
            gpus=8,
            free_gpus=8 - used,
            pods=int(used > 0),
            ready_at=node.ready_at or now,
            idle_since=None if used else node.idle_since or now,
        )


def _point(at: datetime, gpus: int, used_gpus: int) -> UsePoint:
    return UsePoint(at=at, gpus=gpus, used_gpus=used_gpus, queued_jobs=0, pending_gpus=0)


JOBS = (
    pending_job("gang", nodes=8),
    *pending_jobs(11, gpus_per_node=1),
    *(pending_job(f"half-{number}", gpus_per_node=4) for number in range(3)),
)
"""87 GPUs, for which 11 nodes are enough."""
FORESEEN = Forecast(
    made_at=NOW, step=timedelta(days=2), quantiles=(0.9,), gpus=((LOCAL_GPUS + 96,),), model="now", reason=""
)


@pytest.mark.parametrize(
    ("rules", "local_used", "nodes"),
    [
        (replace(DEFAULT, forecast=None), 100, 11),
        (replace(DEFAULT, forecast=None), 30, 11),
        (DEFAULT, 100, 12),
        (DEFAULT, 30, 12),
        (THRIFTY, 100, 12),
        (THRIFTY, 30, 12),
        (S0, 100, 16),
        (S0, 30, 16),
        (S2, 100, 11),
        (S2, 84, 0),
    ],
)
def test_a_demand_that_does_not_change_leads_to_a_pool_that_does_not(
    rules: ScalingRules, local_used: int, nodes: int
) -> None:
    days = Days(*JOBS, local_used=local_used)
    wanted = days.wanted(rules, ticks=8 * 60, forecasts={EVERYWHERE: FORESEEN})
    assert set(wanted[3 * 60 :]) == {nodes}
    assert bool(days.waiting) is (nodes == 0)


@pytest.mark.parametrize("rules", PRESETS.values(), ids=PRESETS.keys())
def test_once_all_have_ended_all_nodes_leave_and_none_comes(rules: ScalingRules) -> None:
    days = Days(pending_job("gang", nodes=8))
    assert days.wanted(rules, ticks=60)[-1] >= 8
    days.used.clear()
    wanted = days.wanted(rules, ticks=2 * 60)
    assert wanted == sorted(wanted, reverse=True)
    assert wanted[-1] == 0
