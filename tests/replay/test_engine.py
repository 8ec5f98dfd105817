"""A replay goes through the live policies: what waits, moves, is ordered and is paid for follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from spillway.errors import BadTrace
from spillway.model import (
    Billing,
    Cluster,
    JobRecord,
    PlacementPolicy,
    PoolTarget,
    Priority,
    QuotaShare,
    ScalingSnapshot,
    WaitRules,
)
from spillway.replay import beats
from spillway.replay.engine import Policy, replay
from spillway.replay.metrics import ReplayResult, figures
from spillway.replay.world import Conditions
from spillway.scaling.planner import plan_scaling
from spillway.scaling.presets import DEFAULT, PRESETS
from spillway.scaling.returning import ReturnRules
from spillway.scaling.rules import QueueRule, ScalingRules
from spillway.testing.builders import NOW, cloud_cluster, cloud_pool, node_pool, onprem_cluster

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
EVENT = ScalingRules(preset="event", reactive=QueueRule(), idle_release=10 * MINUTE)
PLACEMENT = PlacementPolicy(
    weights={"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")},
    quotas={"all": QuotaShare(onprem=Decimal(1), cloud=Decimal(1))},
)
EXACT = Conditions(boot=(6 * MINUTE, 6 * MINUTE))


def clusters(local: int, cloud: int = 10) -> Sequence[Cluster]:
    """So many nodes of 8 GPUs on-premises and in the cloud."""
    bought = cloud_pool(max_nodes=cloud, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)})
    return (onprem_cluster(pools=(node_pool(max_nodes=local),)), cloud_cluster(pools=(bought,)))


def record(name: str, at: timedelta, gpus: int, lasts: timedelta, **fields: object) -> JobRecord:
    started = NOW + at
    job = JobRecord(
        job=name, submitted_at=started, gpus=gpus, started_at=started, ended_at=started + lasts,
        duration_estimate=lasts,
    )  # fmt: skip
    return replace(job, **fields)  # type: ignore[arg-type]


def run(jobs: Sequence[JobRecord], rules: ScalingRules = EVENT, local: int = 1, seed: int = 1) -> ReplayResult:
    policy = Policy(name=rules.preset, placement=PLACEMENT, scaling=rules)
    return replay("made up", jobs, clusters(local), policy, conditions=EXACT, seed=seed)


def stays(result: ReplayResult) -> list[tuple[int, str, float, float]]:
    """(job, place, begin, end) in minutes, by begin."""
    found = zip(
        result.stays.job.tolist(), result.stays.place.tolist(), result.stays.start, result.stays.end, strict=True
    )
    return sorted(
        ((job, result.places[place].name, start / 60, end / 60) for job, place, start, end in found),
        key=lambda stay: (stay[2], stay[0]),
    )


def test_a_job_runs_on_premises_where_there_is_room_and_nothing_is_bought() -> None:
    result = run([record("a", 0 * HOUR, 8, HOUR)])
    assert stays(result) == [(0, "onprem/a100", 0.0, 60.0)]
    assert figures(result).cloud_gpu_hours_paid == 0.0


def test_a_job_that_finds_no_room_waits_for_the_tick_and_the_boot_of_a_node_which_is_paid_for_until_it_leaves() -> None:
    result = run([record("a", 0 * HOUR, 8, 10 * HOUR), record("b", 10 * MINUTE, 8, HOUR)])
    # Ordered with the tick at 10.5, usable at 16.5, idle from 76.5 on and gone at 86.5.
    assert stays(result)[1] == (1, "cloud/h100", 16.5, 76.5)
    assert (result.orders.at / 60).tolist() == [10.5, 86.5]
    assert result.orders.nodes.tolist() == [1, -1]
    assert figures(result).cloud_gpu_hours_paid == pytest.approx(8 * 76 / 60)
    assert figures(result).cloud_cost == Decimal("81.07")


def test_more_gpus_than_a_node_has_are_several_whole_nodes() -> None:
    result = run([record("a", 0 * HOUR, 16, HOUR)], local=2)
    assert stays(result) == [(0, "onprem/a100", 0.0, 60.0)]


def test_the_job_that_was_asked_for_first_begins_first_and_a_small_one_takes_what_a_large_one_cannot() -> None:
    jobs = [record("a", 0 * HOUR, 4, HOUR), record("b", MINUTE, 8, HOUR), record("c", 2 * MINUTE, 4, HOUR)]
    policy = Policy(name="no cloud", placement=PLACEMENT, scaling=EVENT)
    result = replay("made up", jobs, clusters(1, cloud=1)[:1], policy, conditions=EXACT)
    assert stays(result) == [
        (0, "onprem/a100", 0.0, 60.0), (2, "onprem/a100", 2.0, 62.0), (1, "onprem/a100", 62.0, 122.0)
    ]  # fmt: skip


def test_priority_comes_before_the_time_of_asking() -> None:
    jobs = [
        record("a", 0 * HOUR, 8, HOUR),
        record("b", MINUTE, 8, HOUR, priority=Priority.EXPLORATION),
        record("c", 2 * MINUTE, 8, HOUR, priority=Priority.PRODUCTION_CORE),
    ]
    policy = Policy(name="no cloud", placement=PLACEMENT, scaling=EVENT)
    result = replay("made up", jobs, clusters(1)[:1], policy, conditions=EXACT)
    assert [job for job, *_ in stays(result)] == [0, 2, 1]


def test_a_dear_job_waits_for_on_premises_and_a_cheap_one_is_bought_for_at_once() -> None:
    rules = replace(EVENT, waiting=WaitRules(from_gpus=8, from_gpu_hours=Decimal(20), share=Decimal(1)))
    jobs = [record("a", 0 * HOUR, 8, HOUR), record("dear", 0 * HOUR, 8, 3 * HOUR), record("cheap", MINUTE, 8, HOUR)]
    assert stays(run(jobs, rules))[1:] == [(2, "cloud/h100", 7.0, 67.0), (1, "onprem/a100", 60.0, 240.0)]


def test_a_job_that_has_waited_long_enough_is_bought_for() -> None:
    rules = replace(EVENT, waiting=WaitRules(from_gpus=8, from_gpu_hours=Decimal(20), share=Decimal(1)))
    jobs = [record("a", 0 * HOUR, 8, 30 * HOUR), record("dear", 0 * HOUR, 8, 3 * HOUR)]
    assert stays(run(jobs, rules))[1] == (1, "cloud/h100", 186.0, 366.0)


def test_a_run_goes_back_when_on_premises_has_room_and_loses_what_a_move_takes() -> None:
    rules = replace(EVENT, returning=ReturnRules(after=HOUR))
    jobs = [record("a", 0 * HOUR, 8, 2 * HOUR), record("b", 0 * HOUR, 8, 10 * HOUR)]
    # Of 10 hours 113 minutes are done at 120; 10 minutes are lost.
    assert stays(run(jobs, rules)) == [
        (0, "onprem/a100", 0.0, 120.0),
        (1, "cloud/h100", 6.5, 120.0),
        (1, "onprem/a100", 120.0, 616.5),
    ]


def test_a_run_goes_back_to_a_site_where_that_saves_money_and_not_to_a_dearer_one_beside_it() -> None:
    rules = replace(EVENT, returning=ReturnRules(after=HOUR))
    dear = node_pool(max_nodes=1, prices_per_gpu_hour={Billing.OWNED: Decimal(9)})
    first, cloud = clusters(1)
    sites = (first, onprem_cluster(name="annex", pools=(dear,)), cloud)
    jobs = [record(name, 0 * HOUR, 8, lasts * HOUR) for name, lasts in (("a", 5), ("b", 2), ("c", 10))]
    policy = Policy(name=rules.preset, placement=PLACEMENT, scaling=rules)
    # From 120 minutes on the annex has room, from 300 on the first site.
    assert stays(replay("made up", jobs, sites, policy, conditions=EXACT)) == [
        (0, "onprem/a100", 0.0, 300.0),
        (1, "annex/a100", 0.0, 120.0),
        (2, "cloud/h100", 6.5, 300.0),
        (2, "onprem/a100", 300.0, 616.5),
    ]


def test_no_nodes_are_ordered_for_what_on_premises_has_room_for_sooner() -> None:
    rules = replace(EVENT, reactive=QueueRule(within=8 * MINUTE))
    jobs = [record("a", 0 * HOUR, 8, HOUR), record("b", 53 * MINUTE, 8, HOUR)]
    assert stays(run(jobs, rules))[1] == (1, "onprem/a100", 60.0, 120.0)
    assert stays(run(jobs, EVENT))[1] == (1, "cloud/h100", 59.5, 119.5)


def test_a_job_that_holds_back_has_the_room_that_comes_soon_and_nodes_are_ordered_for_the_one_behind_it() -> None:
    waits = WaitRules(from_gpus=8, from_gpu_hours=Decimal(20), share=Decimal(1))
    rules = replace(EVENT, reactive=QueueRule(within=8 * MINUTE), waiting=waits)
    jobs = [
        record("a", 0 * HOUR, 8, HOUR), record("dear", 1 * MINUTE, 8, 3 * HOUR), record("b", 53 * MINUTE, 8, HOUR),
    ]  # fmt: skip
    assert stays(run(jobs, rules))[1:] == [(2, "cloud/h100", 59.0, 119.0), (1, "onprem/a100", 60.0, 240.0)]


def test_a_job_that_no_pool_ever_takes_waits_to_the_end_and_keeps_nobody() -> None:
    result = run([record("a", 0 * HOUR, 8 * 500, HOUR), record("b", 0 * HOUR, 8, HOUR)])
    found = figures(result)
    assert (found.jobs, found.unstarted, found.unfinished) == (2, 1, 1)


def busy_half_day(rules: ScalingRules) -> ReplayResult:
    """A hundred jobs within twelve hours, at 32 GPUs on-premises."""
    chance = np.random.default_rng(7)
    at = np.sort(chance.uniform(0, 12 * 60, 100))
    jobs = [
        record(
            str(i), float(at[i]) * MINUTE, int(chance.choice([1, 2, 4, 8, 16])), float(chance.exponential(200)) * MINUTE
        )
        for i in range(100)
    ]
    policy = Policy(name=rules.preset, placement=PLACEMENT, scaling=rules)
    return replay("made up", jobs, clusters(4, 40), policy, conditions=Conditions(), seed=3)


@pytest.mark.parametrize("preset", PRESETS)
def test_equal_inputs_give_an_equal_result_and_every_job_ends(preset: str) -> None:
    first, second = (busy_half_day(PRESETS[preset]) for _ in range(2))
    assert stays(first) == stays(second)
    assert figures(first) == figures(second)
    assert figures(first).unfinished == 0
    held = [first.used(place).gpus.max(initial=0) for place in range(2)]
    assert held[0] <= 32
    assert all(
        (first.capacity[1].held(np.array([moment])) >= first.used(1).held(np.array([moment]))).all()
        for moment in first.stays.start
    )


@pytest.mark.parametrize("rules", [EVENT, *PRESETS.values()], ids=lambda rules: rules.preset)
def test_the_beats_that_are_passed_over_would_have_changed_nothing(
    rules: ScalingRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[datetime]()

    def counted(seen: ScalingSnapshot, *rest: Any) -> Sequence[PoolTarget]:
        asked.append(seen.taken_at)
        return plan_scaling(seen, *rest)

    monkeypatch.setattr(beats, "plan_scaling", counted)
    found = busy_half_day(rules)
    passed_over = len(asked)
    monkeypatch.setattr(beats, "steady_until", lambda seen, rules: seen.taken_at)
    every_beat = busy_half_day(rules)
    assert passed_over < (len(asked) - passed_over) / 2
    assert stays(found) == stays(every_beat)
    assert figures(found) == figures(every_beat)
    assert (found.orders.at.tolist(), found.over_at) == (every_beat.orders.at.tolist(), every_beat.over_at)


def test_a_job_that_never_gets_a_place_has_waited_until_the_replay_ended() -> None:
    rules = replace(PRESETS["s2"], preset="s2")
    policy = Policy(name="s2", placement=PLACEMENT, scaling=rules)
    jobs = [record("a", 0 * HOUR, 8, HOUR)]
    result = replay("made up", jobs, clusters(1)[1:], policy, conditions=Conditions(tick=HOUR))
    assert figures(result).unstarted == 1
    assert figures(result).wait_p50_minutes == 7 * 24 * 60


def test_a_job_waits_for_one_that_runs_however_long_that_takes() -> None:
    week = 7 * 24 * HOUR
    jobs = [record("a", 0 * HOUR, 8, 2 * week), record("b", MINUTE, 8, HOUR)]
    policy = Policy(name="no cloud", placement=PLACEMENT, scaling=EVENT)
    rare = Conditions(tick=HOUR)
    result = replay("made up", jobs, clusters(1)[:1], policy, conditions=rare)
    ends = 2 * week / MINUTE
    assert stays(result) == [(0, "onprem/a100", 0.0, ends), (1, "onprem/a100", ends, ends + 60)]


def test_a_record_without_a_duration_is_refused() -> None:
    job = replace(record("a", 0 * HOUR, 8, HOUR), ended_at=None)
    with pytest.raises(BadTrace, match="job 'a' does not tell how long it held its GPUs"):
        run([job], DEFAULT)
