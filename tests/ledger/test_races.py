"""Reservations by threads and processes at once: nothing is promised twice, and nothing that fits is refused."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.ledger import Ledger, open_ledger
from spillway.model import (
    AttemptState,
    Billing,
    Budget,
    Candidate,
    GpuShare,
    JobSpec,
    Outcome,
    PlacementDecision,
    QuotaShare,
    SiteKind,
    Snapshot,
)
from spillway.placement.policy import place as real_place
from spillway.quota import department_gpus, gpus_in_use
from spillway.testing.builders import (
    cloud_cluster,
    cloud_pool,
    cluster_state,
    cpu_pool,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    snapshot,
)
from spillway.testing.ledger_values import NOW, PLACE, Decide, a_cost, counting, reserve, reserved
from spillway.testing.racing import in_processes

numbers = itertools.count(1)


def _slowly(decide: Decide) -> Decide:
    """The same decision, taken slowly enough that a call which does not wait its turn would overtake it."""

    def slow(whole: Snapshot) -> PlacementDecision:
        time.sleep(0.003)
        return decide(whole)

    return slow


def _race(ledger: Ledger, place: Candidate, capacity: int, sizes: Sequence[int], prefix: str = "r") -> None:
    """Reserve one run for each size, one after the other."""
    for number, gpus in enumerate(sizes):
        job = job_spec(gpus_per_node=gpus)
        decide = _slowly(counting(job, capacity=capacity, place=place))
        reserve(ledger, f"{place.cluster}-{prefix}-{number}", job, decide=decide)


def _check_capacity(ledger: Ledger, place: Candidate, capacity: int, sizes: Sequence[int]) -> None:
    promised = [r.gpus_per_node for r in ledger.reservations() if r.cluster == place.cluster]
    refused = list(sizes)
    for gpus in promised:
        refused.remove(gpus)
    assert sum(promised) <= capacity
    assert all(gpus > capacity - sum(promised) for gpus in refused), "refused although it fitted"


@settings(max_examples=8)
@given(capacity=st.integers(0, 12), shares=st.lists(st.lists(st.integers(1, 5), max_size=3), min_size=2, max_size=5))
def test_threads_never_reserve_more_than_there_is(ledger: Ledger, capacity: int, shares: list[list[int]]) -> None:
    place = dataclasses.replace(PLACE, cluster=f"cluster-{next(numbers)}")
    with ThreadPoolExecutor(len(shares)) as pool:
        races = [pool.submit(_race, ledger, place, capacity, sizes, f"t{n}") for n, sizes in enumerate(shares)]
    for race in races:
        race.result()
    _check_capacity(ledger, place, capacity, list(itertools.chain(*shares)))


SHARE = GpuShare(resource="nvidia.com/mig-3g.40gb", per_gpu=2, memory_gib=40)
ON_DEMAND = {Billing.ON_DEMAND: Decimal(8)}
POOLS = (
    cloud_pool(max_nodes=2, gpus_per_node=4, prices_per_gpu_hour=ON_DEMAND),
    cloud_pool(name="halves", max_nodes=1, gpus_per_node=2, gpu_share=SHARE, prices_per_gpu_hour=ON_DEMAND),
    cpu_pool(max_nodes=1, cpu_cores_per_node=32, prices_per_core_hour={Billing.ON_DEMAND: Decimal("0.5")}),
)
shapes = st.sampled_from(
    [
        {"gpus_per_node": 1},
        {"gpus_per_node": 3},
        {"gpus_per_node": 2, "nodes": 2},
        {"gpus_per_node": 1, "gpu_fraction": SHARE.fraction},
        {"gpus_per_node": 0, "cpu_cores": 16.0},
    ]
)


@settings(max_examples=6)
@given(
    asked=st.lists(st.lists(st.tuples(st.sampled_from("ab"), shapes), min_size=2, max_size=4), min_size=2, max_size=4),
    limit=st.sampled_from([8, 20, 100]),
)
def test_whatever_is_asked_for_at_once_stays_within_nodes_quotas_and_budgets(
    ledger: Ledger, asked: list[list[tuple[str, dict[str, Any]]]], limit: int
) -> None:
    """Whole GPUs, gangs, parts of GPUs and cores, each for an hour, of two departments with half of the cloud each."""
    number = next(numbers)
    cloud = cloud_cluster(name=f"cloud-{number}", pools=POOLS)
    names = {letter: f"{letter}-{number}" for letter in "ab"}
    policy = placement_policy(
        quotas={name: QuotaShare(onprem=Decimal(0), cloud=Decimal("0.5")) for name in names.values()},
        budgets=tuple(Budget(department=name, limit=Decimal(limit)) for name in names.values()),
    )
    seen = snapshot(cluster_state(cloud), taken_at=NOW)

    def ask(thread: int) -> None:
        for turn, (letter, shape) in enumerate([("a", {"gpus_per_node": 1}), *asked[thread]]):
            job = job_spec(department=names[letter], expected_duration=timedelta(hours=1), **shape)

            def decide(whole: Snapshot, job: JobSpec = job) -> PlacementDecision:
                return real_place(job, whole, policy)

            reserve(ledger, f"q{number}-{thread}-{turn}", job, decide=_slowly(decide), seen=seen, policy=policy)

    with ThreadPoolExecutor(len(asked)) as threads:
        list(threads.map(ask, range(len(asked))))
    held = [promise for promise in ledger.reservations() if promise.cluster == cloud.name]
    assert held, "a single GPU always fits"
    taken = {pool.name: sum((p.gpus for p in held if p.pool == pool.name), Decimal(0)) for pool in POOLS}
    assert all(taken[pool.name] <= pool.max_gpus for pool in POOLS)
    assert sum(p.cpu_millicores_per_node for p in held if p.pool == "cpu") <= 32_000
    quotas, used = (department_gpus(policy.quotas, [cloud], SiteKind.CLOUD), gpus_in_use(held, [cloud], SiteKind.CLOUD))
    assert all(gpus <= quotas.most(department) for department, gpus in used.items())
    assert sum(used.values()) <= sum(pool.max_gpus for pool in POOLS)
    assert [state.left >= 0 for state in ledger.budgets(policy, NOW)] == [True, True]


def test_processes_never_reserve_more_than_there_is(ledger_url: str) -> None:
    capacity, sizes = 10, (3, 1, 2, 1)
    in_processes(4, ledger_url, lambda ledger, process: _race(ledger, PLACE, capacity, sizes, f"p{process}"))
    ledger = open_ledger(ledger_url)
    _check_capacity(ledger, PLACE, capacity, sizes * 4)
    assert len(ledger.runs()) == 16


def test_processes_that_reserve_for_one_run_share_its_one_attempt(ledger_url: str) -> None:
    def reserve_and_stage(ledger: Ledger, process: int) -> None:
        attempt = reserved(ledger, "r")
        assert attempt.number == 1
        ledger.advance(dataclasses.replace(attempt, state=AttemptState.RESERVED), AttemptState.STAGED)

    in_processes(4, ledger_url, reserve_and_stage)
    ledger = open_ledger(ledger_url)
    assert [(a.number, a.state) for a in ledger.attempts("r")] == [(1, AttemptState.STAGED)]
    assert [record.attempt for record in ledger.decisions("r")] == [1]


def test_processes_that_settle_and_book_agree_on_one_ending(ledger_url: str) -> None:
    reserved(open_ledger(ledger_url), "r")

    def settle_and_book(ledger: Ledger, process: int) -> None:
        outcome = Outcome.FAILED if process % 2 else Outcome.PREEMPTED
        settled = ledger.settle(ledger.attempt("r", 1), outcome, f"seen by {process}", NOW)
        assert settled == ledger.attempt("r", 1)
        booked = ledger.book(a_cost("r-1", gpus=Decimal(process + 1)))
        assert (booked,) == ledger.costs("r")

    in_processes(4, ledger_url, settle_and_book)
    ledger = open_ledger(ledger_url)
    assert [attempt.state for attempt in ledger.attempts("r")] == [AttemptState.SETTLED]
    assert len(ledger.costs("r")) == 1


def test_the_real_placement_keeps_nodes_and_quotas_in_a_race(ledger_url: str) -> None:
    seen = snapshot(cluster_state(onprem_cluster(pools=(node_pool(max_nodes=2),))))
    half = QuotaShare(onprem=Decimal("0.5"), cloud=Decimal(0))
    policy = placement_policy(quotas={"research": half, "vision": half})

    def reserve_all(ledger: Ledger, process: int) -> None:
        for number, department in enumerate(("research", "vision", "research")):
            job = job_spec(department=department, gpus_per_node=3)

            def decide(whole: Snapshot, job: JobSpec = job) -> PlacementDecision:
                return real_place(job, whole, policy)

            reserve(ledger, f"p{process}-{number}", job, decide=_slowly(decide), seen=seen, policy=policy)

    in_processes(4, ledger_url, reserve_all)
    ledger = open_ledger(ledger_url)
    promised = Counter(reservation.department for reservation in ledger.reservations())
    # Two jobs of 3 GPUs fit a node of 8, and two fit a department's half of the 16 GPUs.
    assert promised == {"research": 2, "vision": 2}
    for record in itertools.chain(*(ledger.decisions(run.run) for run in ledger.runs())):
        assert real_place(record.job, record.snapshot, record.policy) == record.decision
