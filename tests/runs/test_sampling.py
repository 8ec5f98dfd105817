from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from spillway.commands.preflight import prometheus_gaps
from spillway.config import Configuration
from spillway.connections import ConnectionSpec
from spillway.errors import ConfigError, Missing, SpillwayError, Unreachable
from spillway.ledger import Ledger, ledger_opener, open_ledger
from spillway.model import SAMPLE_STEP, Cluster, ClusterState, DeviceUse, PrometheusRef, RunPolicy, SampleRetention
from spillway.preflight import Gap
from spillway.runs import sampling
from spillway.runs.sampling import Sampler
from spillway.runs.services import Services
from spillway.testing.builders import cloud_cluster, cluster_state, onprem_cluster, placement_policy, pod
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway.testing.polling import eventually
from spillway.testing.prometheus_server import PrometheusServer, dcgm
from spillway.testing.sandbox_server import Installation

T0 = datetime(2026, 3, 2, 9, tzinfo=UTC)
PROMETHEUS = PrometheusRef(connection="onprem_prometheus")


@dataclass
class Site:
    """A cluster of which a test says what it answers."""

    cluster: Cluster
    answer: Callable[[], ClusterState]
    asked: int = 0

    def describe(self) -> ClusterState:
        self.asked += 1
        return self.answer()


@dataclass
class World:
    """Two clusters and a ledger."""

    root: Path
    url: str
    sites: dict[str, Site]
    connections: dict[str, ConnectionSpec] = field(default_factory=dict)
    now: datetime = T0

    @property
    def ledger(self) -> Ledger:
        return open_ledger(self.url)

    def services(self) -> Services:
        def open_site(cluster: Cluster) -> Any:
            return folder_sites(self.root, client=cast(Any, self.sites[cluster.name]))(cluster)

        def connect(name: str) -> ConnectionSpec:
            if name not in self.connections:
                raise Missing("Connection", name, "the test")
            return self.connections[name]

        return Services(
            configuration=Configuration(
                clusters={name: site.cluster for name, site in self.sites.items()},
                datasets={},
                policy=placement_policy(),
                runs=RunPolicy(),
                keep_samples=SampleRetention(),
            ),
            open_ledger=ledger_opener(lambda: self.url),
            open_site=open_site,
            image_uses=lambda: (),
            connect=connect,
            clock=lambda: self.now,
        )

    def used(self) -> dict[datetime, dict[str, float]]:
        """The GPUs in use of each cluster, by moment."""
        found = self.ledger.samples(T0, T0 + timedelta(days=1))
        return {sample.at: {pool.cluster: pool.used_gpus for pool in sample.pools} for sample in found}


def site(cluster: Cluster, gpus: int = 2) -> Site:
    pool = cluster.pools[0].name
    state = cluster_state(cluster, pods=(pod(node=f"{pool}-0", gpus=gpus),))
    return Site(cluster, lambda: state)


@pytest.fixture
def world(tmp_path: Path) -> World:
    sites = {"onprem": site(onprem_cluster()), "cloud": site(cloud_cluster(), 1)}
    return World(root=tmp_path, url=new_ledger(tmp_path / "ledger.db"), sites=sites)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What the sampler has said since it was asked last."""
    caplog.set_level(logging.INFO, logger=sampling.__name__)

    def new() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == sampling.__name__]
        caplog.clear()
        return found

    return new


def ticks(count: int, since: int = 0) -> list[datetime]:
    return [T0 + index * SAMPLE_STEP for index in range(since, since + count)]


def failing(problem: Exception) -> Callable[[], ClusterState]:
    def answer() -> ClusterState:
        raise problem

    return answer


def test_the_sandbox_is_sampled_and_a_cluster_that_is_away_is_a_gap(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "DEADLINE", timedelta(seconds=5))
    sampler, ledger = Sampler(installation.services), installation.services().ledger
    assert sampler.take(T0)
    with installation.frozen("cloud-kube-api"):
        assert sampler.take(T0 + SAMPLE_STEP)
    eventually(lambda: sampler.take(T0 + timedelta(minutes=1)))
    seen = ledger.samples(T0, T0 + timedelta(hours=1))
    assert [sorted({pool.cluster for pool in found.pools}) for found in seen[:2]] == [["cloud", "onprem"], ["onprem"]]
    assert list(seen[1].unknown) == ["cloud"]
    declared = installation.sandbox.sites
    assert {pool.cluster: (pool.gpus, pool.nodes, pool.idle_nodes, pool.used_gpus) for pool in seen[0].pools} == {
        of.name: (sum(node.gpus for node in of.nodes), len(of.nodes), len(of.nodes), 0) for of in declared
    }
    nodes = {node.name: node for node in ledger.sampled_nodes() if node.cluster == "onprem"}
    assert nodes.keys() == {node.name for of in declared if of.name == "onprem" for node in of.nodes}
    assert all(node.created_at and node.ready_at and node.idle_since == T0 for node in nodes.values())


def test_two_samplers_take_one_sample_and_the_second_takes_over_when_the_first_is_gone(world: World) -> None:
    first, second = Sampler(world.services), Sampler(world.services)
    for at in ticks(2):
        assert first.take(at)
        assert second.take(at)
    assert (first.stands_by, second.stands_by) == (False, True)
    assert [site.asked for site in world.sites.values()] == [2, 2], "the second looks at nothing"
    [third] = ticks(1, 2)
    assert second.take(third)
    assert not second.stands_by
    assert list(world.used()) == ticks(3)


def test_samplers_that_look_at_the_same_time_write_one_sample_and_one_of_them_stands_by(world: World) -> None:
    both = threading.Barrier(2, timeout=60)
    known = world.sites["onprem"].answer

    def at_once() -> ClusterState:
        both.wait()
        return known()

    world.sites["onprem"].answer = at_once
    samplers = [Sampler(world.services), Sampler(world.services)]
    threads = [threading.Thread(target=sampler.take, args=(T0,)) for sampler in samplers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sampler.stands_by for sampler in samplers) == [False, True]
    assert world.used() == {T0: {"onprem": 2, "cloud": 1}}


def test_a_cluster_that_fails_is_said_once_and_once_when_it_is_back(
    world: World, said: Callable[[], list[str]]
) -> None:
    sampler, cloud = Sampler(world.services), world.sites["cloud"]
    known, cloud.answer = cloud.answer, failing(Unreachable("cluster 'cloud'", "connection refused"))
    for at in ticks(3):
        assert sampler.take(at)
    assert said() == [
        "reading cluster 'cloud' fails, which is a gap for as long as it lasts: "
        "cluster 'cloud' is unreachable: connection refused"
    ]
    cloud.answer = known
    assert sampler.take(ticks(4)[3])
    assert said() == ["reading cluster 'cloud' works again"]
    assert list(world.used().values()) == [{"onprem": 2}] * 3 + [{"onprem": 2, "cloud": 1}]


def test_a_cluster_that_never_answers_costs_each_sample_its_deadline_and_one_thread_in_all(
    world: World, said: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "DEADLINE", timedelta(seconds=0.5))
    released, cloud = threading.Event(), world.sites["cloud"]
    known = cloud.answer

    def hangs() -> ClusterState:
        released.wait(60)
        return known()

    cloud.answer = hangs
    sampler, before = Sampler(world.services), threading.active_count()
    began = time.monotonic()
    for at in ticks(4):
        assert sampler.take(at)
    assert time.monotonic() - began < 40
    assert threading.active_count() == before + 1
    assert cloud.asked == 1
    assert list(world.used().values()) == [{"onprem": 2}] * 4
    assert len(said()) == 1
    released.set()
    eventually(threading.active_count, lambda count: count == before)
    assert sampler.take(ticks(5)[4])
    assert world.used()[ticks(5)[4]] == {"onprem": 2, "cloud": 1}


def test_a_ledger_that_is_away_is_a_gap_and_how_long_it_was_is_said_once(
    world: World, said: Callable[[], list[str]]
) -> None:
    sampler = Sampler(world.services)
    assert sampler.take(T0)
    ledger = world.root / "ledger.db"
    ledger.rename(world.root / "away.db")
    for at in ticks(3, 1):
        assert not sampler.take(at)
    (line,) = said()
    assert line.startswith("taking samples fails, which is a gap for as long as it lasts: ledger ")
    (world.root / "away.db").rename(ledger)
    assert sampler.take(ticks(5)[4])
    assert said() == ["taking samples works again; 3 are missing"]
    assert list(world.used()) == [T0, ticks(5)[4]]


def test_what_is_declared_anew_counts_from_then_on_and_what_is_wrong_changes_nothing(
    world: World, said: Callable[[], list[str]]
) -> None:
    declared: list[object] = [1]
    problem: list[SpillwayError] = []

    def open_services() -> Services:
        if problem:
            raise problem[0]
        return world.services()

    sampler = Sampler(open_services, lambda: declared[0])
    assert sampler.take(T0)
    world.sites["edge"] = site(onprem_cluster(name="edge"))
    assert sampler.take(ticks(2)[1])
    declared[0], problem[:] = 2, [ConfigError("clusters.yaml", "clusters[0]", "is wrong")]
    for at in ticks(2, 2):
        assert sampler.take(at)
    assert said() == [
        "reading the configuration fails, which is a gap for as long as it lasts: "
        "clusters.yaml: clusters[0]: is wrong; what was declared before goes on to count"
    ]
    problem.clear()
    assert sampler.take(ticks(5)[4])
    assert said() == ["reading the configuration works again"]
    assert [sorted(used) for used in world.used().values()] == [["cloud", "onprem"]] * 4 + [["cloud", "edge", "onprem"]]


def test_a_fault_in_one_sample_does_not_end_the_sampler(world: World, said: Callable[[], list[str]]) -> None:
    sampler = Sampler(lambda: replace(world.services(), configuration=cast(Any, None)))
    assert not sampler.take(T0)
    assert any("AttributeError" in line for line in said())


class Clock:
    """A clock that a test moves: ``stop.wait`` lets it go on, and sets it where the test says so."""

    def __init__(self, stop: threading.Event, start: datetime, *, steps: dict[int, datetime], ends: int) -> None:
        self.now, self.steps, self.ends, self.waits = start, steps, ends, [0.0][:0]
        self.stop = stop

    def __call__(self) -> datetime:
        return self.now

    def wait(self, seconds: float | None = None) -> bool:
        assert seconds is not None
        self.waits.append(seconds)
        self.now = self.steps.get(len(self.waits), self.now + timedelta(seconds=seconds))
        if len(self.waits) == self.ends:
            self.stop.set()
        return self.stop.is_set()


def taken_by(monkeypatch: pytest.MonkeyPatch, *, start: datetime, steps: dict[int, datetime], ends: int) -> Any:
    """The moments that a sampler takes by such a clock, and how long it waited between."""
    stop = threading.Event()
    clock = Clock(stop, start, steps=steps, ends=ends)
    monkeypatch.setattr(stop, "wait", clock.wait)
    sampler, moments = Sampler(cast(Any, None)), [T0][:0]
    monkeypatch.setattr(sampler, "take", moments.append)
    sampler.run(stop, clock=clock)
    return moments, clock.waits


def test_moments_are_aligned_and_a_clock_that_steps_leaves_a_gap_and_takes_none_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments, waits = taken_by(monkeypatch, start=T0 + timedelta(seconds=12), steps={}, ends=3)
    assert (moments, waits) == (ticks(3), [18, 30, 30])
    ahead = T0 + timedelta(hours=1, seconds=7)
    moments, waits = taken_by(monkeypatch, start=T0, steps={2: ahead}, ends=4)
    assert (moments, waits) == (
        [*ticks(2), T0 + timedelta(hours=1), T0 + timedelta(hours=1, seconds=30)],
        [30, 30, 23, 30],
    )
    back = {2: T0 + timedelta(seconds=31)}
    moments, waits = taken_by(monkeypatch, start=T0 + timedelta(seconds=1), steps=back, ends=4)
    assert (moments, waits) == (ticks(3), [29, 30, 29, 30])
    far_back = {1: T0 - timedelta(hours=1)}
    moments, _ = taken_by(monkeypatch, start=T0, steps=far_back, ends=3)
    assert moments == [T0, T0 - timedelta(hours=1), T0 - timedelta(hours=1) + SAMPLE_STEP]


def test_one_that_stands_by_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "STANDS_BY", timedelta(seconds=10))
    stop = threading.Event()
    clock = Clock(stop, T0, steps={}, ends=4)
    monkeypatch.setattr(stop, "wait", clock.wait)
    sampler, moments = Sampler(cast(Any, None)), [T0][:0]

    def take(at: datetime) -> None:
        moments.append(at)
        sampler.stands_by = at < T0 + timedelta(minutes=1)

    monkeypatch.setattr(sampler, "take", take)
    sampler.run(stop, clock=clock)
    assert (moments, clock.waits) == (ticks(4), [40, 30, 20, 30])


def open_files() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_many_samples_leave_no_thread_and_no_open_file_behind(world: World) -> None:
    sampler = Sampler(world.services)
    sampler.take(T0)
    before = threading.active_count(), open_files()
    for at in ticks(20, 1):
        world.now = at + SAMPLE_STEP
        sampler.take(at)
    assert (threading.active_count(), open_files()) == before
    averages = world.ledger.samples(T0, T0 + timedelta(hours=1), timedelta(minutes=5))
    assert [found.taken for found in averages] == [10, 10]


def test_prometheus_tells_what_the_devices_do_and_its_outage_hides_nothing_else(
    world: World, prometheus_server: PrometheusServer, said: Callable[[], list[str]]
) -> None:
    onprem = world.sites["onprem"]
    onprem.cluster = replace(onprem.cluster, prometheus=PROMETHEUS)
    world.connections["onprem_prometheus"] = prometheus_server.connection("onprem_prometheus")
    prometheus_server.exporter.tell(dcgm("GPU_UTIL", 80), dcgm("GPU_UTIL", 20, gpu=1))
    sampler = Sampler(world.services)
    assert sampler.take(T0)
    with prometheus_server.outage():
        for at in ticks(2, 1):
            assert sampler.take(at)
    (line,) = said()
    assert line.startswith("asking the Prometheus of cluster 'onprem' fails, which is a gap for as long as it lasts: ")
    assert sampler.take(ticks(4)[3])
    wrong = prometheus_server.connection("onprem_prometheus", password="s3cret-of-yesterday")
    world.connections["onprem_prometheus"] = wrong
    assert sampler.take(ticks(5)[4])
    del world.connections["onprem_prometheus"]
    assert sampler.take(ticks(6)[5])
    back, refused = said()
    assert back == "asking the Prometheus of cluster 'onprem' works again"
    assert "refused the credentials: HTTP 401" in refused
    assert "s3cret" not in refused
    told = [
        pool.device
        for found in world.ledger.samples(T0, T0 + timedelta(hours=1))
        for pool in found.pools
        if pool.cluster == "onprem"
    ]
    both = DeviceUse(gpus=2, utilisation=0.5)
    assert told == [both, None, None, both, None, None]
    assert [used["onprem"] for used in world.used().values()] == [2] * 6


def test_a_prometheus_that_tells_nothing_of_the_cluster_is_said_to(
    world: World, prometheus_server: PrometheusServer, said: Callable[[], list[str]]
) -> None:
    onprem = world.sites["onprem"]
    onprem.cluster = replace(onprem.cluster, prometheus=PROMETHEUS)
    world.connections["onprem_prometheus"] = prometheus_server.connection("onprem_prometheus")
    sampler = Sampler(world.services)
    prometheus_server.exporter.tell(dcgm("GPU_UTIL", 80, node="dcgm-exporter-x7f2q"))
    assert sampler.take(T0)
    assert [line.partition(": ")[2] for line in said()] == [
        "its label 'Hostname' has dcgm-exporter-x7f2q, which is no node of the cluster; correct prometheus.node_label"
    ]
    (gone,) = prometheus_gaps_of(world, prometheus_server)
    assert gone.problem == "it has no fresh figure of DCGM's exporter with a label 'Hostname'"
    assert sampler.take(ticks(2)[1])
    assert said() == [], "it is said once, whatever the cause"
    prometheus_server.exporter.tell(dcgm("GPU_UTIL", 80))
    assert sampler.take(ticks(3)[2])
    assert said() == ["asking the Prometheus of cluster 'onprem' works again"]
    assert not list(prometheus_gaps(onprem.cluster, world.connections.__getitem__))
    world.connections["onprem_prometheus"] = prometheus_server.connection("onprem_prometheus", password="wrong")
    (refused,) = prometheus_gaps(onprem.cluster, world.connections.__getitem__)
    assert (refused.checked, refused.fix) == (False, "correct Connection 'onprem_prometheus'")


def prometheus_gaps_of(world: World, server: PrometheusServer) -> tuple[Gap, ...]:
    """What preflight says while nothing is scraped."""
    server.exporter.tell("up 1")
    return tuple(prometheus_gaps(world.sites["onprem"].cluster, world.connections.__getitem__))


@pytest.mark.parametrize(
    ("connection", "problem"),
    [
        (ConnectionSpec(conn_id="p", conn_type="aws", host="h"), "expected http, got 'aws'"),
        (ConnectionSpec(conn_id="p", conn_type="http"), "expected a host alone, got nothing"),
        (ConnectionSpec(conn_id="p", conn_type="http", host="http://h/x"), "a path belongs into extra.path"),
    ],
)
def test_a_connection_that_names_no_prometheus_is_told(connection: ConnectionSpec, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        sampling.open_prometheus(onprem_cluster(prometheus=PROMETHEUS), lambda name: connection)
