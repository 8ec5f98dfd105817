"""A small job passes a big one that waits where it does not keep it from its start, and the big one is not starved."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.model import JobSpec, NodeState, QueuedRun, Rejection, Reservation, Snapshot
from spillway.placement.capacity import ClusterUse, Room
from spillway.placement.context import index
from spillway.placement.policy import place
from spillway.placement.queueing import PATIENCE, held_for
from spillway.testing.builders import (
    NOW,
    cluster_state,
    job_spec,
    node_pool,
    nodes_of,
    onprem_cluster,
    placement_policy,
    pod,
    queued_run,
    reservation,
    snapshot,
)

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def held(number: int, node: str | None, gpus: int, ends_in: timedelta | None) -> tuple[Any, Reservation]:
    """The pod of an attempt, and what is promised to it."""
    label = f"r{number}-1"
    ends_at = None if ends_in is None else NOW + ends_in
    return pod(name=label, attempt=label, node=node, gpus=gpus), reservation(
        attempt=label, gpus_per_node=gpus, ends_at=ends_at
    )


def site(nodes: int, *running: tuple[Any, Reservation], queue: tuple[QueuedRun, ...] = (queued_run(),)) -> Snapshot:
    pool = node_pool(max_nodes=nodes)
    state = cluster_state(onprem_cluster(pools=(pool,)), pods=[use for use, _ in running])
    return snapshot(state, reservations=tuple(promise for _, promise in running), queue=queue)


def said(job: JobSpec, seen: Snapshot) -> tuple[Rejection, ...]:
    [verdict] = place(job, seen, placement_policy()).verdicts
    return verdict.rejections


SIX = held(1, "a100-0", 6, 2 * HOUR)
SIX_FOR_EVER = held(1, "a100-0", 6, None)
OVERDUE = held(1, "a100-0", 6, -MINUTE)
FOUR = held(2, "a100-0", 4, None)
EIGHT = held(3, "a100-1", 8, 2 * HOUR)
PASSES: dict[str, tuple[dict[str, Any], Snapshot, bool]] = {
    "nobody waits": ({}, site(1, SIX, queue=()), True),
    "it has ended by then": ({"longest_duration": 2 * HOUR}, site(1, SIX), True),
    "it has ended by then, as far as is expected": ({"expected_duration": 2 * HOUR}, site(1, SIX), True),
    "it has not": ({"longest_duration": 2 * HOUR + MINUTE}, site(1, SIX), False),
    "it expects to, but may last longer": (
        {"expected_duration": HOUR, "longest_duration": 3 * HOUR}, site(1, SIX), False,
    ),
    "nobody says how long it lasts": ({}, site(1, SIX), False),
    "the run waits for another pool": (
        {}, site(1, SIX, queue=(queued_run(places=frozenset({("cloud", "h100")})),)), True,
    ),
    "both fit then, wherever it lies": ({"gpus_per_node": 4}, site(2, FOUR, EIGHT), True),
    "it might lie where the run goes": ({}, site(2, FOUR, held(3, "a100-1", 6, 2 * HOUR)), False),
    "the run fits now already": ({}, site(1), False),
    "the run fits now beside it": ({}, site(2, held(3, "a100-1", 7, None)), False),
    "nobody knows when the run starts, not for long": ({}, site(1, SIX_FOR_EVER), True),
    "nobody knows, for a minute less than its patience": (
        {}, site(1, SIX_FOR_EVER, queue=(queued_run(since=NOW - PATIENCE + MINUTE),)), True,
    ),
    "nobody knows, and its patience is over": (
        {"longest_duration": MINUTE}, site(1, SIX_FOR_EVER, queue=(queued_run(since=NOW - PATIENCE),)), False,
    ),
    "who should have ended has no end that is known": (
        {"longest_duration": HOUR}, site(1, OVERDUE, queue=(queued_run(since=NOW - PATIENCE),)), False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("job", "seen", "passes"), PASSES.values(), ids=PASSES)
def test_who_passes_a_run_that_waits(job: dict[str, Any], seen: Snapshot, passes: bool) -> None:
    assert [rejection.rule for rejection in said(job_spec(**job), seen)] == ([] if passes else ["queue"])


def test_who_may_not_pass_is_told_whom_and_until_when() -> None:
    [rejection] = said(job_spec(longest_duration=3 * HOUR), site(1, SIX))
    assert rejection.waits
    assert rejection.reason == (
        "run big-1 (research, 1 x 8 GPUs), which waits since 2026-01-05T11:50:00+00:00, comes first: it starts by "
        "2026-01-05T14:00:00+00:00, before this job has ended (3:00:00 at most)"
    )
    [rejection] = said(job_spec(), site(1, SIX_FOR_EVER, queue=(queued_run(since=NOW - PATIENCE),)))
    assert rejection.reason.endswith("comes first: nobody can say when it starts, so nobody takes what it needs")


def test_a_run_that_waits_is_held_the_pool_where_it_starts_first_and_no_other() -> None:
    fast, slow = node_pool(name="fast", max_nodes=1), node_pool(name="slow", max_nodes=1)
    pods = [pod(name=n, attempt=f"{n}-1", node=f"{n}-0", gpus=6) for n in ("fast", "slow")]
    ends = {"fast": HOUR, "slow": 2 * HOUR}
    promises = [
        reservation(attempt=f"{n}-1", pool=n, gpus_per_node=6, ends_at=NOW + after) for n, after in ends.items()
    ]
    waits = queued_run(places=frozenset({("onprem", "fast"), ("onprem", "slow")}))
    seen = snapshot(
        cluster_state(onprem_cluster(pools=(fast, slow)), pods=pods), reservations=tuple(promises), queue=(waits,)
    )
    decision = place(job_spec(), seen, placement_policy())
    assert decision.chosen is not None
    assert decision.chosen.pool == "slow"
    assert [v.rejections[0].rule for v in decision.verdicts if v.candidate.pool == "fast"] == ["queue"]


two_jobs = st.lists(st.tuples(st.integers(1, 8), st.none() | st.integers(1, 5)), min_size=2, max_size=2)


@given(busy=st.fixed_dictionaries({"a": two_jobs, "b": two_jobs}), gpus=st.integers(1, 8), pods=st.integers(1, 2))
def test_the_pool_that_is_held_is_the_one_where_the_run_starts_first_of_all(
    busy: dict[str, list[tuple[int, int | None]]], gpus: int, pods: int
) -> None:
    """Each site has two nodes and two jobs, of so many GPUs, that end in so many hours or nobody knows when."""
    states = {name: cluster_state(onprem_cluster(name=name, pools=(node_pool(max_nodes=2),))) for name in busy}
    promises = {
        site: [
            reservation(
                attempt=f"{site}{number}-1",
                cluster=site,
                gpus_per_node=used,
                ends_at=None if hours is None else NOW + hours * HOUR,
            )
            for number, (used, hours) in enumerate(running)
        ]
        for site, running in busy.items()
    }
    run = queued_run(nodes=pods, gpus_per_node=gpus, places=frozenset((site, "a100") for site in busy))

    def starts(site: str) -> datetime | None:
        for moment in (NOW + hours * HOUR for hours in range(6)):
            left = [promise for promise in promises[site] if promise.ends_at is None or promise.ends_at > moment]
            free = ClusterUse(states[site], left).capacities()["a100"]
            if free.blocks(Room(gpus, run.cpu_millicores_per_node, run.memory_mib_per_node)) >= pods:
                return moment
        return None

    known = {site: start for site in busy if (start := starts(site)) is not None}
    seen = snapshot(*states.values(), reservations=(*promises["a"], *promises["b"]))
    place_held, start = held_for(run, index(seen, placement_policy()))
    assert place_held is not None
    assert start == min(known.values(), default=None)
    assert start == known.get(place_held[0])


class Day:
    """One pool, small jobs that never cease to come, and a big one; whoever fits is put on any node, as by chance."""

    def __init__(self, chance: random.Random, *, nodes: int, known: bool) -> None:
        self.pool = node_pool(max_nodes=nodes)
        self.nodes: tuple[NodeState, ...] = nodes_of(self.pool, nodes)
        self.chance, self.known = chance, known
        self.running: dict[str, tuple[str, int, datetime, timedelta]] = {}

    def ask(self, name: str, job: JobSpec, now: datetime, queue: tuple[QueuedRun, ...], lasts: timedelta) -> bool:
        pods = [pod(name=n, attempt=n, node=at, gpus=gpus) for n, (at, gpus, _, _) in self.running.items()]
        promises = [
            reservation(attempt=n, gpus_per_node=gpus, ends_at=end if self.known else None)
            for n, (_, gpus, end, _) in self.running.items()
        ]
        state = cluster_state(onprem_cluster(pools=(self.pool,)), nodes=self.nodes, pods=pods)
        seen = replace(snapshot(state, reservations=tuple(promises), queue=queue), taken_at=now)
        if place(job, seen, placement_policy()).chosen is None:
            return False
        used = {node.name: sum(g for at, g, _, _ in self.running.values() if at == node.name) for node in self.nodes}
        fitting = [name for name, gpus in used.items() if 8 - gpus >= job.gpus_per_node]
        self.running[name] = (self.chance.choice(fitting), job.gpus_per_node, now + (job.longest or lasts), lasts)
        return True

    def pass_to(self, now: datetime, before: datetime) -> None:
        """Jobs end when they have lasted, which is never longer than they said."""
        self.running = {n: run for n, run in self.running.items() if run[2] > now}


@settings(max_examples=40)
@given(chance=st.randoms(use_true_random=False), nodes=st.integers(1, 3), known=st.booleans())
def test_a_big_job_starts_within_its_bound_though_small_ones_come_for_ever(
    chance: random.Random, nodes: int, known: bool
) -> None:
    """Small jobs last up to an hour; with their ends known the bound is one of them, else the patience and one more."""
    day, now, asked = Day(chance, nodes=nodes, known=known), NOW, None
    bound = HOUR if known else PATIENCE + HOUR
    waits: tuple[QueuedRun, ...] = ()
    for minute in range(0, 600, 10):
        before, now = now, NOW + minute * MINUTE
        day.pass_to(now, before)
        if minute == 120:
            asked = now
            waits = (queued_run(since=now),)
        if asked is not None and day.ask("big", job_spec(gpus_per_node=8), now, (), 9 * HOUR):
            assert now - asked <= bound + 10 * MINUTE
            return
        for number in range(20):
            lasts = chance.randint(1, 6) * 10 * MINUTE
            job = job_spec(gpus_per_node=chance.randint(1, 4), longest_duration=lasts if known else None)
            day.ask(f"s{minute}-{number}", job, now, waits, lasts)
    raise AssertionError("the big job never started")


def test_a_run_holds_no_node_whose_driver_is_too_old_for_it() -> None:
    """Its own node is free in an hour; the other one, which it cannot use, is nobody's until then."""
    pool = node_pool(max_nodes=2)
    old, new = (replace(node, driver=driver) for node, driver in zip(nodes_of(pool, 2), ("470", "580"), strict=True))
    use, promise = held(1, new.name, 8, HOUR)
    run = queued_run(image="train:torch2.1-cuda12.1", since=NOW - HOUR)
    state = cluster_state(onprem_cluster(pools=(pool,)), nodes=[old, new], pods=[use])
    seen = snapshot(state, reservations=(promise,), queue=(run,))
    assert held_for(run, index(seen, placement_policy())) == (("onprem", "a100"), NOW + HOUR)
    for job in (job_spec(), job_spec(gpus_per_node=8, expected_duration=10 * HOUR)):
        assert said(job, seen) == ()
    later = replace(seen, clusters=(replace(state, nodes=(replace(old, driver="580"), new)),))
    assert [rejection.rule for rejection in said(job_spec(), later)] == ["queue"]
