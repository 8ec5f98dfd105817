"""Spot comes and goes in a replay, and runs that were on it lose what they had not committed, and wait again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path

import pytest

from spillway.errors import ConfigError, UnknownName
from spillway.model import Billing, Cluster, JobRecord, PlacementPolicy, Priority, QuotaShare
from spillway.replay.conditions import conditions_of
from spillway.replay.engine import Policy, replay
from spillway.replay.metrics import ReplayResult, figures
from spillway.replay.spot import Stretch, Zone, spot_apart
from spillway.replay.world import Conditions
from spillway.scaling.rules import QueueRule, ScalingRules
from spillway.testing.builders import NOW, cloud_cluster, cloud_pool, node_pool, onprem_cluster

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
RULES = ScalingRules(preset="event", reactive=QueueRule(), idle_release=10 * MINUTE)
PLACEMENT = PlacementPolicy(
    weights={"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")},
    quotas={"all": QuotaShare(onprem=Decimal(1), cloud=Decimal(1))},
)
SPOT = ("cloud", "h100")


def lasting(hours: float) -> Stretch:
    """Always as long."""
    return Stretch(mean_hours=hours, median_hours=hours)


def zone(up: float, down: float) -> Zone:
    return Zone(up=lasting(up), down=lasting(down))


def job(at: timedelta, lasts: timedelta, **fields: object) -> JobRecord:
    record = JobRecord(job=f"{at}", submitted_at=NOW + at, gpus=8, started_at=NOW + at, ended_at=NOW + at + lasts)
    return replace(record, **fields)  # type: ignore[arg-type]


def clouds(*pools: str) -> Sequence[Cluster]:
    """A cloud with pools of spot alone, at 2.8, and one that is sold on-demand, at 8."""
    known = {
        "h100": cloud_pool(max_nodes=10, prices_per_gpu_hour={Billing.SPOT: Decimal("2.8")}),
        "dear": cloud_pool(name="dear", max_nodes=10, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)}),
    }
    return (cloud_cluster(pools=tuple(known[name] for name in pools)),)


def run(
    jobs: Sequence[JobRecord],
    there: Zone,
    *,
    first: bool = True,
    clusters: Sequence[Cluster] = clouds("h100"),
    hours: float = 24,
) -> ReplayResult:
    """So many hours, with a seed by which the zone begins with spot, or without."""
    seed = next(seed for seed in range(100) if next(there.stretches(random.Random(f"{seed}:cloud/h100")))[0] is first)
    conditions = Conditions(boot=(6 * MINUTE, 6 * MINUTE), spot={SPOT: there}, spot_ok=frozenset({Priority.RESEARCH}))
    policy = Policy(name="event", placement=PLACEMENT, scaling=RULES)
    measured = (0.0, hours * 3600)
    return replay("made up", jobs, clusters, policy, conditions=conditions, seed=seed, measured=measured)


def stays(result: ReplayResult) -> list[tuple[str, float, float]]:
    """(place, begin, end) in minutes, by begin."""
    columns = result.stays.place.tolist(), (result.stays.start / 60).tolist(), (result.stays.end / 60).tolist()
    found = [(result.places[place].name, start, end) for place, start, end in zip(*columns, strict=True)]
    return sorted(found, key=lambda stay: stay[1])


def test_a_run_loses_what_it_has_not_committed_and_starts_anew_once_there_is_spot_again() -> None:
    result = run([job(timedelta(), 3 * HOUR)], zone(2, 1), hours=281 / 60)
    # Ordered at 0.5, usable at 6.5. At 120 it has trained for 113.5 minutes, and committed 90 of them. Spot is back at
    # 180, its node at 186; it takes 5 minutes to start, and trains for the 90 that are left.
    assert stays(result) == [("cloud/h100", 6.5, 120.0), ("cloud/h100", 186.0, 281.0)]
    found = figures(result)
    assert (found.interruptions, found.lost_gpu_hours) == (1, pytest.approx(8 * 23.5 / 60))
    assert (found.unfinished, found.response_mean_hours) == (0, pytest.approx(281 / 60))
    # Nothing is paid for while there is none.
    assert found.cloud_gpu_hours_paid == pytest.approx(8 * (119.5 + 101) / 60)
    assert found.cloud_cost == Decimal("82.32")
    assert found.flaps == 0


def test_nodes_that_are_ordered_while_there_is_no_spot_come_when_there_is_and_are_paid_for_from_then_on() -> None:
    result = run([job(timedelta(), HOUR)], zone(5, 1), first=False, hours=126 / 60)
    assert stays(result) == [("cloud/h100", 66.0, 126.0)]
    assert figures(result).cloud_gpu_hours_paid == pytest.approx(8 * 66 / 60)


def test_only_jobs_that_may_be_interrupted_are_on_spot_and_the_others_pay_for_on_demand() -> None:
    jobs = [job(timedelta(), HOUR), job(MINUTE, HOUR, priority=Priority.PRODUCTION_CORE)]
    result = run(jobs, zone(5, 1), clusters=clouds("h100", "dear"))
    assert stays(result) == [("cloud/h100", 6.5, 66.5), ("cloud/dear", 7.0, 67.0)]
    assert figures(result).interruptions == 0


def test_a_run_that_never_gets_as_far_as_a_commit_is_left_some_day() -> None:
    found = figures(run([job(timedelta(), HOUR)], zone(0.25, 0.25), hours=1000))
    assert (found.interruptions, found.unfinished, found.unstarted) == (100, 1, 0)


def test_equal_seeds_give_equal_spot_and_others_other() -> None:
    there = Zone(up=Stretch(mean_hours=6, median_hours=1), down=Stretch(mean_hours=1, median_hours=0.5))
    drawn = [list(islice(there.stretches(random.Random(seed)), 6)) for seed in ("1:a", "1:a", "2:a")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [up for up, _ in drawn[0]] in ([True, False] * 3, [False, True] * 3)


def test_a_pool_that_sells_both_ways_becomes_two_and_spot_of_no_zone_is_not_for_sale() -> None:
    clusters = (
        onprem_cluster(pools=(node_pool(),)),
        cloud_cluster(pools=(cloud_pool(), cloud_pool(name="other"), cloud_pool(name="only"))),
    )
    only = replace(clusters[1].pools[2], prices_per_gpu_hour={Billing.SPOT: Decimal(3)})
    clusters = (clusters[0], replace(clusters[1], pools=(*clusters[1].pools[:2], only)))
    apart, zones = spot_apart(clusters, {("cloud", "h100"): zone(2, 1), ("cloud", "only"): zone(3, 1)})
    assert apart[0] == clusters[0]
    assert {pool.name: dict(pool.prices_per_gpu_hour) for pool in apart[1].pools} == {
        "h100": {Billing.ON_DEMAND: Decimal("8.0")},
        "h100-spot": {Billing.SPOT: Decimal("2.8")},
        "other": {Billing.ON_DEMAND: Decimal("8.0")},
        "only": {Billing.SPOT: Decimal(3)},
    }
    assert zones == {("cloud", "h100-spot"): zone(2, 1), ("cloud", "only"): zone(3, 1)}
    assert spot_apart(clusters, {}) == (clusters, {})
    with pytest.raises(UnknownName, match="unknown pool with a spot price 'onprem/a100'; known: cloud/h100"):
        spot_apart(clusters, {("onprem", "a100"): zone(1, 1)})


def test_a_pool_that_is_there_already_is_never_taken_for_the_spot_of_another() -> None:
    dear = cloud_pool(name="h100-spot", prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(9)})
    apart, zones = spot_apart((cloud_cluster(pools=(cloud_pool(), dear)),), {SPOT: zone(2, 1)})
    assert [pool.name for pool in apart[0].pools] == ["h100", "h100-spot-spot", "h100-spot"]
    assert zones == {("cloud", "h100-spot-spot"): zone(2, 1)}


def test_a_file_tells_when_there_is_spot_and_who_may_use_it(tmp_path: Path) -> None:
    file = tmp_path / "conditions.yaml"
    file.write_text(
        "spot:\n"
        "  cloud/h100: {up: {mean: 6h, median: 1h}, down: {mean: 1h, median: 30m}}\n"
        "spot_ok: [research, exploration]\n"
        "checkpoint_every: 20m\n"
    )
    apart, conditions = conditions_of(file, (cloud_cluster(),))
    assert [pool.name for pool in apart[0].pools] == ["h100", "h100-spot"]
    there = Zone(up=Stretch(mean_hours=6, median_hours=1), down=Stretch(mean_hours=1, median_hours=0.5))
    assert conditions == replace(
        Conditions(),
        spot={("cloud", "h100-spot"): there},
        spot_ok=frozenset({Priority.RESEARCH, Priority.EXPLORATION}),
        checkpoint_every=20 * MINUTE,
    )


def test_the_file_in_the_docs_is_one_that_can_be_read(tmp_path: Path) -> None:
    docs = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text()
    file = tmp_path / "conditions.yaml"
    file.write_text(docs.partition("### Conditions")[2].partition("```yaml\n")[2].partition("```")[0])
    _, conditions = conditions_of(file, (cloud_cluster(),))
    assert [*conditions.spot] == [("cloud", "h100-spot")]
    assert (conditions.dataset_gib, conditions.checkpoint_gib) == (100.0, 28.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("spot: {cloud/h100: {up: {mean: 1h, median: 2h}, down: {mean: 1h, median: 1h}}}", "a median of 2 hours"),
        ("spot: {cloud/h100: {up: {mean: 1h, median: 1h}}}", "spot.cloud/h100.down"),
        ("spot: {cloud/h200: {up: {mean: 1h, median: 1h}, down: {mean: 1h, median: 1h}}}", "known: cloud/h100"),
        ("spot: {h100: {up: {mean: 1h, median: 1h}, down: {mean: 1h, median: 1h}}}", "expected a pool as cluster/pool"),
        ("spot_ok: [reserch]", "Did you mean 'research'"),
        ("checkpoint_every: 0m", "expected a duration above 0"),
        ("checkpoints: 1h", "unknown key 'checkpoints'"),
    ],
)
def test_conditions_at_fault_are_refused_with_their_place(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "conditions.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told) as problem:
        conditions_of(file, (cloud_cluster(),))
    assert str(problem.value).startswith("conditions.yaml: ")
