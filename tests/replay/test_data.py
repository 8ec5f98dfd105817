"""What the data of jobs takes in a replay: bringing it to a cloud, and moving a run with what it has committed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from spillway.errors import BadTrace, ConfigError
from spillway.lines import GIBIBYTE
from spillway.model import Billing, Cluster, JobRecord, Link, PlacementPolicy, Priority, QuotaShare
from spillway.replay.conditions import conditions_of
from spillway.replay.data import Transfers
from spillway.replay.decisions import Decisions
from spillway.replay.engine import Policy, replay
from spillway.replay.jobs import jobs_of
from spillway.replay.metrics import ReplayResult
from spillway.replay.spot import Stretch, Zone
from spillway.replay.trace import read_trace
from spillway.replay.world import Conditions, World
from spillway.replay.writing import write_trace
from spillway.scaling.returning import ReturnRules
from spillway.scaling.rules import QueueRule, ScalingRules
from spillway.testing.builders import NOW, cloud_cluster, cloud_pool, node_pool, onprem_cluster

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
EVENT = ScalingRules(preset="event", reactive=QueueRule(), idle_release=10 * MINUTE)
PLACEMENT = PlacementPolicy(
    weights={"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")},
    quotas={"all": QuotaShare(onprem=Decimal(1), cloud=Decimal(1))},
)
STANDARD = Conditions(boot=(6 * MINUTE, 6 * MINUTE))
GIGABIT = 1e9 / 8


def gib(lasting: timedelta) -> float:
    """What a line of one gigabit carries in that time."""
    return lasting.total_seconds() * GIGABIT / GIBIBYTE


def cloud(name: str = "cloud", gbps: float = 1.0, price: str = "8", billing: Billing = Billing.ON_DEMAND) -> Cluster:
    bought = cloud_pool(max_nodes=10, prices_per_gpu_hour={billing: Decimal(price)})
    return cloud_cluster(name=name, pools=(bought,), link=Link(bandwidth_gbps=gbps))


def home(nodes: int) -> Cluster:
    return onprem_cluster(pools=(node_pool(max_nodes=nodes),))


def job(at: timedelta, lasts: timedelta, **fields: object) -> JobRecord:
    record = JobRecord(job=f"{at}", submitted_at=NOW + at, gpus=8, started_at=NOW + at, ended_at=NOW + at + lasts)
    return replace(record, duration_estimate=lasts, **fields)  # type: ignore[arg-type]


def run(
    jobs: Sequence[JobRecord],
    rules: ScalingRules = EVENT,
    conditions: Conditions = STANDARD,
    clusters: Sequence[Cluster] = (home(1), cloud()),
    seed: int = 1,
) -> ReplayResult:
    policy = Policy(name="event", placement=PLACEMENT, scaling=rules)
    return replay("made up", jobs, clusters, policy, conditions=conditions, seed=seed)


def stays(result: ReplayResult) -> list[tuple[int, str, float, float]]:
    """(job, place, begin, end) in minutes, by begin."""
    own = result.stays
    columns = own.job.tolist(), own.place.tolist(), (own.start / 60).tolist(), (own.end / 60).tolist()
    found = [(which, result.places[place].name, start, end) for which, place, start, end in zip(*columns, strict=True)]
    return sorted(found, key=lambda stay: (stay[2], stay[0]))


def test_a_job_that_starts_in_a_cloud_first_has_its_data_brought_there_and_at_home_has_it() -> None:
    brought = gib(10 * MINUTE)
    jobs = [job(timedelta(), 5 * HOUR, dataset_gib=brought), job(MINUTE, HOUR, dataset_gib=brought)]
    expected = [(0, "onprem/a100", 0.0, 300.0), (1, "cloud/h100", 7.5, pytest.approx(77.5))]
    assert stays(run(jobs)) == expected
    untold = [replace(one, dataset_gib=None) for one in jobs]
    assert stays(run(untold, conditions=replace(STANDARD, dataset_gib=brought))) == expected
    assert stays(run(untold))[1] == (1, "cloud/h100", 7.5, 67.5)


def test_the_place_is_chosen_with_what_bringing_the_data_there_costs() -> None:
    records = [job(timedelta(), HOUR), job(MINUTE, HOUR, dataset_gib=gib(HOUR))]
    world = World((home(0), cloud("far", gbps=0.1), cloud("near", gbps=10.0, price="8.5")), NOW)
    for pool in world.cloud:
        pool.ready(pool.order(0.0), 0.0)
    jobs = jobs_of(records, PLACEMENT, STANDARD)
    decisions = Decisions(world, PLACEMENT, Transfers(world, STANDARD))
    places = [decisions.choose(one, False, 60.0) for one in jobs]
    assert [place.cluster.name for place in places if place is not None] == ["far", "near"]


def test_a_run_that_goes_back_loses_what_its_checkpoint_takes_over_the_line() -> None:
    rules = replace(EVENT, returning=ReturnRules(after=HOUR))
    jobs = [job(timedelta(), 2 * HOUR), job(timedelta(), 10 * HOUR, checkpoint_gib=gib(2 * MINUTE))]
    # Of 10 hours 113.5 minutes are done at 120. A minute to commit, 2 over the line and 5 to start.
    assert stays(run(jobs, rules))[1:] == [
        (1, "cloud/h100", 6.5, 120.0), (1, "onprem/a100", 120.0, pytest.approx(120 + 8 + 486.5))
    ]  # fmt: skip


def test_no_run_goes_back_for_money_where_the_price_at_home_is_not_known() -> None:
    rules = replace(EVENT, returning=ReturnRules(after=HOUR))
    jobs = [job(timedelta(), 2 * HOUR), job(timedelta(), 10 * HOUR)]
    unpriced = onprem_cluster(pools=(node_pool(max_nodes=1, prices_per_gpu_hour={}),))
    assert [place for _, place, _, _ in stays(run(jobs, rules, clusters=(unpriced, cloud())))] == ["cloud/h100"] * 2
    free = onprem_cluster(pools=(node_pool(max_nodes=1, prices_per_gpu_hour={Billing.OWNED: Decimal(0)}),))
    assert [place for _, place, _, _ in stays(run(jobs, rules, clusters=(free, cloud())))][1:] == [
        "cloud/h100",
        "onprem/a100",
    ]


def test_a_run_that_does_not_commit_within_its_grace_loses_what_it_trained_since_its_last_checkpoint() -> None:
    rules = replace(EVENT, returning=ReturnRules(after=HOUR))
    slow = replace(STANDARD, move=replace(STANDARD.move, flush=3 * MINUTE))
    jobs = [job(timedelta(), 2 * HOUR), job(timedelta(), 10 * HOUR)]
    # 3 minutes, 4 over the line, 5 to start, and the 23.5 since the third checkpoint.
    assert stays(run(jobs, rules, slow))[2] == (1, "onprem/a100", 120.0, pytest.approx(120 + 35.5 + 486.5))


def test_data_is_brought_once_however_often_the_run_is_interrupted() -> None:
    there = Zone(up=Stretch(mean_hours=2, median_hours=2), down=Stretch(mean_hours=1, median_hours=1))
    seed = next(seed for seed in range(100) if next(there.stretches(random.Random(f"{seed}:cloud/h100")))[0])
    spot = replace(STANDARD, spot={("cloud", "h100"): there}, spot_ok=frozenset({Priority.RESEARCH}))
    clusters = (home(1), cloud(billing=Billing.SPOT))
    jobs = [job(timedelta(), 20 * HOUR), job(timedelta(), 3 * HOUR, dataset_gib=gib(20 * MINUTE))]
    # It trains for 93.5 minutes after the first 20, and has committed 90; then it starts within 5.
    assert stays(run(jobs, conditions=spot, clusters=clusters, seed=seed))[1:] == [
        (1, "cloud/h100", 6.5, 120.0), (1, "cloud/h100", 186.0, pytest.approx(186 + 5 + 90))
    ]  # fmt: skip


def test_sizes_are_columns_of_a_trace_and_are_written_as_they_were_read(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    jobs = (job(timedelta(), HOUR, dataset_gib=12.5, checkpoint_gib=0.0), job(HOUR, HOUR))
    write_trace(file, jobs)
    assert read_trace(file).jobs == jobs
    file.write_text("job,submitted_at,gpus,duration_seconds,dataset_gib\na,0,1,60,-1\n")
    with pytest.raises(BadTrace, match="line 2: dataset_gib: expected a number from 0 to 1,000,000, got '-1'"):
        read_trace(file)


def test_a_file_of_conditions_tells_sizes_and_what_a_move_takes(tmp_path: Path) -> None:
    file = tmp_path / "conditions.yaml"
    file.write_text("dataset_gib: 100\ncheckpoint_gib: 2.5\nmove: {flush: 30s, restart: 4m}\n")
    clusters = (home(1), cloud())
    told = Conditions(dataset_gib=100.0, checkpoint_gib=2.5)
    move = replace(told.move, flush=timedelta(seconds=30), restart=4 * MINUTE)
    assert conditions_of(file, clusters) == (clusters, replace(told, move=move))
    file.write_text("dataset_gib: -1\n")
    with pytest.raises(ConfigError, match=r"conditions.yaml: dataset_gib: .* got -1"):
        conditions_of(file, clusters)
