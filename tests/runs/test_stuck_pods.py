"""Pods that were asked to end and do not, on a node that answers: told at once, waited for only so long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from spillway.clouds.base import LogLines
from spillway.errors import Unreachable
from spillway.handover import STUCK_LIMIT
from spillway.model import Attempt, AttemptState, Cluster, JobSpec, Outcome, PodPhase, PodState, VerdictKind
from spillway.runs.engine import conclude
from spillway.runs.predecessors import await_predecessors
from spillway.runs.services import Services, Site
from spillway.runs.settling import Ended, settle
from spillway.runs.watching import Watch
from spillway.testing.carried_run import Carried

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
SECOND = timedelta(seconds=1)


@dataclass
class Clock:
    now: datetime

    def __call__(self) -> datetime:
        return self.now


@dataclass
class ClusterWithStuckPod:
    """A client of a cluster that takes the wish that a pod end, and on which nothing comes of it."""

    cluster: Cluster
    pod: PodState
    clock: Clock
    wishes: int = 0
    silent: bool = False

    def state(self, pod_name: str, **_: object) -> PodState:
        assert pod_name == self.pod.name
        if self.silent:
            raise Unreachable("cluster 'onprem'", "Connection refused")
        return self.pod

    def owned(self, *_: object) -> tuple[PodState, ...]:
        return (self.pod,)

    def stop(self, pod_name: str, *, grace: timedelta) -> None:
        self.wishes += 1
        self.pod = replace(self.pod, deleted_at=self.pod.deleted_at or self.clock.now, grace=grace)

    def logs(self, pod_name: str, **_: object) -> LogLines:
        return LogLines(lines=(), until=None)


def stuck(run: Carried) -> tuple[Services, Attempt, ClusterWithStuckPod, Clock]:
    """Services that see the pod of the run's attempt run for ever, and a clock that the test moves."""
    staged = run.services.ledger.advance(run.place(), AttemptState.STAGED, image_digest=f"sha256:{'0' * 64}")
    attempt = run.services.ledger.advance(staged, AttemptState.LAUNCHED, pod_uid="u-1")
    clock = Clock(run.services.clock())
    pod = PodState(
        name=attempt.label,
        phase=PodPhase.RUNNING,
        cluster="onprem",
        uid="u-1",
        node="onprem-1",
        node_exists=True,
        node_ready=True,
        grace=attempt.job.grace,
        attempt=attempt.label,
    )
    cluster = ClusterWithStuckPod(run.services.configuration.clusters["onprem"], pod, clock)

    def open_site(declared: Cluster) -> Site:
        site = run.services.open_site(declared)
        return replace(site, client=cluster) if declared.name == "onprem" else site  # type: ignore[arg-type]

    return replace(run.services, open_site=open_site, clock=clock, _opened={}), attempt, cluster, clock


def patience(services: Services, attempt: Attempt) -> timedelta:
    return attempt.job.grace + services.configuration.runs.node_margin


def test_a_watch_says_that_a_pod_is_stuck_as_soon_as_it_is_and_ends_when_it_has_been_for_too_long(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    services, attempt, cluster, clock = stuck(run)
    cluster.pod = replace(cluster.pod, disruption="EvictionByEvictionAPI", deleted_at=clock.now)
    watch = Watch(services=services, attempt=attempt, steady=clock)
    assert watch.poll().summary == "disrupted: EvictionByEvictionAPI; waiting for the pod to end"

    clock.now += patience(services, attempt) + SECOND
    look = watch.poll()
    assert look.ended is None
    assert f"; pod '{attempt.label}' should have ended by" in look.summary
    assert watch.poll() == look

    clock.now += STUCK_LIMIT
    ended = watch.poll().ended
    assert ended is not None
    assert ended.kind is VerdictKind.PREEMPTED
    assert "look at node onprem-1 of cluster 'onprem'" in ended.reason
    assert cluster.wishes == 1
    assert conclude(services, run.run, 1, ended, run.said.append).outcome is Outcome.PREEMPTED


@pytest.mark.parametrize("hours", [1, -1], ids=["forward", "back"])
def test_a_clock_that_is_set_by_an_hour_neither_ends_a_pod_nor_hands_its_run_over(
    open_run: Carry, make_job: MakeJob, hours: int
) -> None:
    run = open_run(make_job())
    services, attempt, cluster, wall = stuck(run)
    steady = cluster.clock = Clock(wall.now)
    watch = Watch(services=services, attempt=attempt, steady=steady)
    running = cluster.pod
    starting = replace(running, phase=PodPhase.PENDING, created_at=wall.now, read_at=wall.now)

    def goes_on_although_the_clock_is_set() -> None:
        for _ in range(2):
            assert watch.poll().ended is None
            wall.now += timedelta(hours=hours)
        assert watch.poll().ended is None

    cluster.pod = starting
    goes_on_although_the_clock_is_set()
    cluster.pod = running
    cluster.silent = True
    goes_on_although_the_clock_is_set()
    cluster.silent = False
    cluster.pod = replace(running, disruption="EvictionByEvictionAPI")
    goes_on_although_the_clock_is_set()

    steady.now += patience(services, attempt) + STUCK_LIMIT + SECOND
    ended = watch.poll().ended
    assert ended is not None and ended.kind is VerdictKind.PREEMPTED


def test_how_old_a_pod_is_its_clusters_clock_tells(open_run: Carry, make_job: MakeJob) -> None:
    run = open_run(make_job())
    services, attempt, cluster, wall = stuck(run)
    limit, there = services.configuration.runs.startup_limit, wall.now - timedelta(hours=1)
    watch = Watch(services=services, attempt=attempt, steady=Clock(wall.now))
    cluster.pod = replace(cluster.pod, phase=PodPhase.PENDING, created_at=there, read_at=there + limit)
    assert watch.poll().ended is None
    cluster.pod = replace(cluster.pod, read_at=there + limit + SECOND)
    look = watch.poll()
    assert look.summary.startswith(f"not running {(limit + SECOND).total_seconds():.0f} s after its creation")


def test_an_old_pod_that_does_not_end_holds_back_the_next_attempt_only_for_so_long(
    open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job())
    services, attempt, cluster, clock = stuck(run)
    settle(services, attempt, Ended(kind=VerdictKind.DELETED_BY_PERSON, reason="cleared"))
    second = replace(attempt, number=2)

    def ticking() -> datetime:
        clock.now += STUCK_LIMIT / 5
        return clock.now

    began = clock.now
    await_predecessors(replace(services, clock=ticking), second, run.said.append)

    assert clock.now - began > patience(services, attempt) + STUCK_LIMIT
    assert cluster.wishes == 1
    waiting, late = run.said[-2:]
    assert waiting == f"pod {attempt.label} of an earlier attempt still runs at onprem; waiting for it to end"
    assert late.startswith(f"pod '{attempt.label}' should have ended by")
