from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from spillway.ledger import Ledger
from spillway.ledger import sample_rows as ledger_sample_rows
from spillway.ledger import samples as ledger_samples
from spillway.ledger.connection import Database
from spillway.ledger.sample_rows import write_sample
from spillway.model import (
    SAMPLE_STEP,
    DemandSeries,
    DeviceUse,
    JobDemand,
    JobUse,
    NodeSample,
    PodStart,
    PoolSample,
    Sample,
    SampleRetention,
    UsePoint,
)

T0 = datetime(2026, 3, 2, 9, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIVE_MINUTES = 5 * MINUTE
KEEP = SampleRetention()
EVERYWHERE = frozenset({("onprem", "a100"), ("cloud", "h100")})


def pool(cluster: str = "onprem", *, used: float = 24, gpus: float = 32, **changes: Any) -> PoolSample:
    jobs = (JobUse(job="llm", department="research", gpus=used),) if used else ()
    name = {"onprem": "a100"}.get(cluster, "h100")
    values: dict[str, Any] = {"cluster": cluster, "pool": name, "gpus": gpus, "used_gpus": used, "nodes": gpus / 8}
    return PoolSample(**values | {"idle_nodes": (gpus - used) // 8, "jobs": jobs} | changes)


def waiting(gpus: float, *, runs: float = 1, job: str = "llm", at: Iterable[tuple[str, str]] = EVERYWHERE) -> JobDemand:
    return JobDemand(job=job, department="research", places=frozenset(at), runs=runs, gpus=gpus)


def sample(at: datetime = T0, *pools: PoolSample, queue: tuple[JobDemand, ...] = (), **unknown: str) -> Sample:
    return Sample(at=at, pools=pools, queue=queue, unknown=unknown)


def take(
    ledger: Ledger, since: datetime, until: datetime, *pools: PoolSample, queue: tuple[JobDemand, ...] = ()
) -> None:
    """A sample every half minute, all in one transaction."""
    record(ledger, *(sample(at, *pools, queue=queue) for at in every(SAMPLE_STEP, since, until)))


def record(ledger: Ledger, *taken: Sample) -> None:
    with ledger.database.writing() as connection:
        for one in taken:
            write_sample(connection, one)


def every(step: timedelta, since: datetime, until: datetime) -> Iterator[datetime]:
    return (since + index * step for index in range((until - since) // step))


def test_a_sample_comes_back_as_it_was_measured(ledger: Ledger) -> None:
    device = DeviceUse(gpus=8, utilisation=0.75, memory=0.5, power_watts=310.5)
    seen = sample(T0, pool("cloud", used=0), pool(device=device, measured=1), queue=(waiting(16),), edge="refused")
    assert ledger.record_sample(seen)
    assert ledger.samples(T0, T0 + MINUTE) == (seen,)
    assert ledger.has_sample(T0)
    assert not ledger.has_sample(T0 + SAMPLE_STEP)


def test_two_samplers_of_one_moment_make_one_sample_and_complete_each_other(ledger: Ledger) -> None:
    first = sample(T0, pool(used=8), cloud="no answer", edge="refused")
    assert ledger.record_sample(first)
    assert not ledger.record_sample(first)
    assert not ledger.record_sample(sample(T0, pool(used=16), cloud="no answer", edge="refused"))
    assert ledger.samples(T0, T0 + MINUTE) == (first,)
    assert ledger.record_sample(sample(T0, pool(used=16), pool("cloud"), queue=(waiting(8),), edge="refused"))
    whole = sample(T0, pool("cloud"), pool(used=8), queue=(waiting(8),), edge="refused")
    assert ledger.samples(T0, T0 + MINUTE) == (whole,)


def test_points_of_one_side_leave_out_moments_in_which_one_of_its_clusters_was_not_read(ledger: Ledger) -> None:
    ledger.record_sample(sample(T0, pool(), pool("cloud", used=3.5), pool("edge", gpus=8, used=8)))
    ledger.record_sample(sample(T0 + SAMPLE_STEP, pool(), pool("cloud"), edge="no answer"))
    queue = (waiting(16, runs=2), waiting(0.5, at={("edge", "h100")}))
    ledger.record_sample(sample(T0 + MINUTE, pool(used=0), pool("cloud"), pool("edge"), queue=queue))

    def points(*clusters: str) -> list[UsePoint]:
        return list(ledger.use_points(clusters, T0 - MINUTE, T0 + MINUTE))

    def point(at: datetime, gpus: int, used: int, queued: int = 0, pending: int = 0) -> UsePoint:
        return UsePoint(at=at, gpus=gpus, used_gpus=used, queued_jobs=queued, pending_gpus=pending)

    assert points("onprem") == [
        point(T0, 32, 24),
        point(T0 + SAMPLE_STEP, 32, 24),
        point(T0 + MINUTE, 32, 0, queued=2, pending=16),
    ]
    assert points("cloud", "edge") == [point(T0, 40, 12), point(T0 + MINUTE, 64, 48, queued=3, pending=17)]
    assert points("nowhere") == points() == []
    assert ledger.use_points(["onprem"], T0, T0 + SAMPLE_STEP) == (point(T0 + SAMPLE_STEP, 32, 24),)


def test_averages_are_of_what_was_measured_and_say_how_much_that_was(ledger: Ledger) -> None:
    hot, cold = DeviceUse(gpus=32, utilisation=0.9, temperature_celsius=80), DeviceUse(gpus=16, utilisation=0.3)
    ledger.record_sample(sample(T0, pool(used=32, device=hot, measured=1), pool("cloud", used=8)))
    ledger.record_sample(sample(T0 + MINUTE, pool(used=16, device=cold, measured=1), queue=(waiting(8),), cloud="away"))
    ledger.record_sample(sample(T0 + 2 * MINUTE, pool(used=0), cloud="refused"))
    ledger.roll_up_samples(KEEP, T0 + FIVE_MINUTES)
    [average] = ledger.samples(T0, T0 + HOUR, FIVE_MINUTES)
    device = DeviceUse(gpus=24, utilisation=pytest.approx(0.7), temperature_celsius=80)  # type: ignore[arg-type]
    assert average == Sample(
        at=T0,
        step=FIVE_MINUTES,
        taken=3,
        pools=(pool("cloud", used=8), pool(used=16, idle_nodes=2, device=device, measured=2, taken=3)),
        queue=(waiting(pytest.approx(8 / 3), runs=pytest.approx(1 / 3)),),  # type: ignore[arg-type]
        unknown={"cloud": "refused"},
    )
    assert average.coverage == 0.3
    assert ledger.samples(T0, T0 + HOUR, HOUR) == (), "the hour is not over"
    ledger.roll_up_samples(KEEP, T0 + HOUR)
    [whole] = ledger.samples(T0, T0 + HOUR, HOUR)
    assert (whole.taken, whole.coverage, whole.pools) == (3, 3 / 120, average.pools)


def test_averaging_again_changes_nothing_and_a_late_sample_is_counted(ledger: Ledger) -> None:
    take(ledger, T0, T0 + HOUR, pool(used=8))
    ledger.roll_up_samples(KEEP, T0 + HOUR)
    before = ledger.samples(T0, T0 + DAY, HOUR)
    ledger.roll_up_samples(KEEP, T0 + HOUR)
    assert ledger.samples(T0, T0 + DAY, HOUR) == before == (
        Sample(at=T0, step=HOUR, taken=120, pools=(pool(used=8, taken=120),)),
    )  # fmt: skip
    ledger.record_sample(sample(T0 + SAMPLE_STEP / 2, pool(used=129)))
    ledger.roll_up_samples(KEEP, T0 + HOUR)
    [late] = ledger.samples(T0, T0 + DAY, HOUR)
    assert (late.taken, late.pools[0].used_gpus) == (121, pytest.approx(9))


def test_a_gap_stays_a_gap_in_every_average(ledger: Ledger) -> None:
    take(ledger, T0, T0 + FIVE_MINUTES, pool())
    take(ledger, T0 + 3 * HOUR, T0 + 3 * HOUR + FIVE_MINUTES, pool(used=0))
    ledger.roll_up_samples(KEEP, T0 + 4 * HOUR)
    assert [found.at for found in ledger.samples(T0, T0 + DAY, FIVE_MINUTES)] == [T0, T0 + 3 * HOUR]
    assert [found.at for found in ledger.samples(T0, T0 + DAY, HOUR)] == [T0, T0 + 3 * HOUR]
    assert ledger.samples(T0, T0 + DAY, HOUR)[1].pools[0].used_gpus == 0


def an_hour(hours: int, *pools: PoolSample, taken: int = 120, **rest: Any) -> Sample:
    return Sample(at=T0 + hours * HOUR, step=HOUR, taken=taken, pools=pools, **rest)


def test_demand_is_what_is_used_and_waited_for_and_an_hour_that_was_hardly_measured_is_a_gap(ledger: Ledger) -> None:
    queue = (waiting(16, runs=2), waiting(4, at={("onprem", "a100")}))
    local, remote = pool(taken=120), pool("cloud", used=8, taken=120)
    record(
        ledger,
        an_hour(0, local, remote, queue=queue),
        an_hour(1, local, remote, taken=59),
        an_hour(3, pool(used=0, taken=120), pool("cloud", used=0, taken=60)),
        an_hour(4, local, unknown={"cloud": "away"}),
        an_hour(5, replace(local, taken=60), replace(remote, taken=60), taken=60),
        an_hour(6, local, replace(remote, taken=59), unknown={"cloud": "away at times"}),
    )
    assert ledger.demand(T0 + 10 * MINUTE, T0 + 8 * HOUR + MINUTE) == DemandSeries(
        starts_at=T0, step=HOUR, gpus=(52.0, None, None, 0.0, None, 32.0, None, None)
    )
    assert ledger.demand(T0, T0 + 59 * MINUTE) == DemandSeries(starts_at=T0, step=HOUR, gpus=())


def test_the_hours_of_a_day_with_a_clock_change_are_all_different_moments(ledger: Ledger) -> None:
    """They are counted by UTC: a local day of 25 hours has 25."""
    berlin = ZoneInfo("Europe/Berlin")
    begin, end = datetime(2026, 10, 25, tzinfo=berlin), datetime(2026, 10, 26, tzinfo=berlin)
    hours = (begin.astimezone(UTC) - T0) // HOUR
    record(ledger, *(an_hour(hours + index, pool(used=index, taken=120)) for index in range(25)))
    assert ledger.demand(begin, end) == DemandSeries(starts_at=begin, step=HOUR, gpus=tuple(map(float, range(25))))


def test_what_is_kept_is_counted_in_samples_so_that_a_wrong_clock_drops_nothing(ledger: Ledger) -> None:
    keep = SampleRetention(samples=10 * MINUTE, five_minutes=HOUR, hours=2 * HOUR)
    take(ledger, T0, T0 + 15 * MINUTE, pool())
    ledger.record_sample(sample(T0 + 4000 * DAY, pool()))  # a clock that was far ahead for a moment
    ledger.roll_up_samples(keep, T0 + 4000 * DAY + FIVE_MINUTES)
    kept = [found.at for found in ledger.samples(T0, T0 + DAY)]
    assert kept == [T0 + index * SAMPLE_STEP for index in range(11, 30)]
    assert len(ledger.samples(T0, T0 + DAY, FIVE_MINUTES)) == 3
    for hours in range(1, 5):
        take(ledger, T0 + hours * HOUR, T0 + hours * HOUR + FIVE_MINUTES, pool())
    ledger.roll_up_samples(keep, T0 + 5 * HOUR)
    assert [found.at for found in ledger.samples(T0, T0 + DAY, HOUR)] == [T0 + 3 * HOUR, T0 + 4 * HOUR]


def test_what_is_not_averaged_yet_is_kept_and_dropping_goes_on_in_portions(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_samples, "PRUNED_AT_ONCE", 4)
    keep = SampleRetention(samples=SAMPLE_STEP)
    take(ledger, T0, T0 + FIVE_MINUTES, pool())
    ledger.roll_up_samples(keep, T0 + FIVE_MINUTES - SAMPLE_STEP)
    assert len(ledger.samples(T0, T0 + HOUR)) == 10
    left = []
    for _ in range(4):
        ledger.roll_up_samples(keep, T0 + FIVE_MINUTES)
        left.append(len(ledger.samples(T0, T0 + HOUR)))
    assert left == [6, 2, 1, 1]
    ledger.record_sample(sample(T0 + SAMPLE_STEP, pool(used=0)))  # late: of the others of its step most are gone
    ledger.roll_up_samples(keep, T0 + HOUR)
    assert [found.taken for found in ledger.samples(T0, T0 + HOUR, FIVE_MINUTES)] == [10]


def node(name: str = "n1", at: datetime = T0, *, used: float = 0, **changes: Any) -> NodeSample:
    seen = NodeSample(
        cluster="onprem",
        pool="a100",
        name=name,
        seen_at=at,
        gpus=8,
        used_gpus=used,
        created_at=T0 - DAY,
        ready_at=T0 - HOUR,
        idle_since=None if used else at,
    )
    return replace(seen, **changes)


def test_a_node_idles_since_it_was_first_seen_so_without_a_gap(ledger: Ledger) -> None:
    def see(at: datetime, *nodes: NodeSample) -> list[datetime | None]:
        ledger.record_sample(sample(at, pool()), nodes)
        return [found.idle_since for found in ledger.sampled_nodes()]

    later = [T0 + index * MINUTE for index in range(12)]
    assert see(later[0], node(), node("n2", used=8)) == [later[0], None]
    assert see(later[1], node(at=later[1]), node("n2", later[1])) == [later[0], later[1]]
    assert see(later[2], node(at=later[2], used=1), node("n2", later[2])) == [None, later[1]]
    assert see(later[3], node(at=later[3]), node("n2", later[3], created_at=later[2])) == [later[3], later[3]]
    assert see(later[7], node(at=later[7])) == [later[7]], "in a gap it may have had a pod"
    ledger.record_sample(sample(later[8], onprem="no answer"))
    assert [found.seen_at for found in ledger.sampled_nodes()] == [later[7]], "what is not read is not gone"
    assert see(later[6], node(at=later[6], used=8)) == [later[7]], "a sample of before changes nothing"
    assert see(later[9], node(at=later[9])) == [later[7]]


def test_a_pod_starts_once_however_often_it_is_seen(ledger: Ledger) -> None:
    def start(pod: str, after: timedelta, **changes: Any) -> PodStart:
        began = PodStart(cluster="cloud", pool="h100", pod=f"training/{pod}", created_at=T0, started_at=T0 + after)
        return replace(began, **changes)

    first, second = start("b-1", MINUTE), start("a-1", 4 * MINUTE)
    again = start("b-1", 9 * MINUTE, created_at=T0 + 5 * MINUTE)
    ledger.record_sample(sample(T0, pool()), starts=(first, second))
    ledger.record_sample(sample(T0 + MINUTE, pool()), starts=(second, first, again))
    assert ledger.pod_starts(T0, T0 + HOUR) == (first, second, again)
    assert ledger.pod_starts(T0 + MINUTE, T0 + 4 * MINUTE) == (second,)
    assert [found.latency for found in (first, again)] == [MINUTE, 4 * MINUTE]
    many = tuple(start(f"gang-{index:03}", 10 * MINUTE) for index in range(500))
    for minutes in (2, 3):
        ledger.record_sample(sample(T0 + minutes * MINUTE, pool()), starts=many)
    assert len(ledger.pod_starts(T0, T0 + HOUR)) == 503


def test_the_newest_sample_of_a_pool_stays_the_newest_while_its_cluster_is_away(ledger: Ledger) -> None:
    assert ledger.newest_sample(T0) is None
    ledger.record_sample(sample(T0, pool(used=1), pool("cloud", used=2)))
    away = sample(T0 + HOUR, pool(used=3), cloud="no answer")
    ledger.record_sample(away)
    ledger.record_sample(sample(T0 + DAY, pool(used=4)))  # of a clock that was ahead
    assert ledger.newest_sample(T0 + 2 * HOUR) == away
    assert ledger.newest_pool_samples(T0 + 2 * HOUR) == (
        (T0, pool("cloud", used=2)),
        (T0 + HOUR, pool(used=3)),
    )


def _racing(url: str, at: datetime) -> None:
    ledger = Ledger(Database(url))
    for index in range(10):
        ledger.record_sample(sample(at + index * SAMPLE_STEP, pool(), pool("cloud")))
    ledger.roll_up_samples(KEEP, at + FIVE_MINUTES)


def test_samplers_that_write_at_the_same_time_write_one_row_each_pool_and_moment(ledger_url: str) -> None:
    fork = multiprocessing.get_context("fork")
    racers = [fork.Process(target=_racing, args=(ledger_url, T0)) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    assert [racer.exitcode for racer in racers] == [0, 0, 0]
    ledger = Ledger(Database(ledger_url))
    assert [len(found.pools) for found in ledger.samples(T0, T0 + HOUR)] == [2] * 10
    assert [found.taken for found in ledger.samples(T0, T0 + HOUR, FIVE_MINUTES)] == [10]


def _killed_while_averaging(url: str, writes: int) -> None:
    written: Callable[..., None] = ledger_sample_rows.write_sample
    left = [writes]

    def write_or_die(*arguments: Any) -> None:
        written(*arguments)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    ledger_sample_rows.write_sample = write_or_die
    Ledger(Database(url)).roll_up_samples(KEEP, T0 + HOUR)


def test_whoever_is_killed_while_averaging_is_followed_by_the_next_who_does(ledger_url: str) -> None:
    ledger = Ledger(Database(ledger_url))
    take(ledger, T0, T0 + HOUR, pool(used=8))
    for writes in (3, 5, 5):
        child = multiprocessing.get_context("fork").Process(target=_killed_while_averaging, args=(ledger_url, writes))
        child.start()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
    ledger.roll_up_samples(KEEP, T0 + HOUR)
    assert ledger.samples(T0, T0 + DAY, HOUR) == (
        Sample(at=T0, step=HOUR, taken=120, pools=(pool(used=8, taken=120),)),
    )
