"""One snapshot of all clusters: in parallel, within a deadline, and never empty for want of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.clouds.base import ClusterClient
from spillway.errors import Missing, Unreachable
from spillway.model import Cluster, ClusterState, DatasetFacts, ObjectInfo, Snapshot, Tier
from spillway.observe import observe
from spillway.stores.local import LocalStore
from spillway.stores.s3 import open_store
from spillway.sync.execute import sync_dataset
from spillway.testing.builders import NOW, cloud_cluster, cluster_state, onprem_cluster

PATIENT = timedelta(seconds=60)
ONPREM, CLOUD = onprem_cluster(), cloud_cluster()


@dataclass
class AnsweringCluster:
    """A client of which only ``describe`` is used: it answers with what ``answer`` gives."""

    cluster: Cluster
    answer: Callable[[], ClusterState]

    def describe(self) -> ClusterState:
        return self.answer()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"observing must not call {name}")


def well(cluster: Cluster) -> ClusterClient:
    return AnsweringCluster(cluster, lambda: cluster_state(cluster))


def failing(cluster: Cluster, problem: Exception) -> ClusterClient:
    def fail() -> ClusterState:
        raise problem

    return AnsweringCluster(cluster, fail)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end of the test, so that clusters that hang do not outlive it."""
    event = threading.Event()
    yield event
    event.set()


def test_the_snapshot_holds_every_cluster_that_answers() -> None:
    known = {"digits": DatasetFacts(home="onprem", size_bytes=7)}
    seen = observe({"onprem": well(ONPREM), "cloud": well(CLOUD)}, now=NOW, deadline=PATIENT, datasets=known)
    assert seen == Snapshot(
        taken_at=NOW,
        clusters=(cluster_state(CLOUD), cluster_state(ONPREM)),
        datasets_present=frozenset({("digits", "onprem")}),
        datasets=known,
    )


def test_a_cluster_that_fails_is_unreachable_with_its_cause_and_hides_no_other() -> None:
    seen = observe(
        {"onprem": failing(ONPREM, Unreachable("cluster 'onprem'", "503")), "cloud": well(CLOUD)},
        now=NOW,
        deadline=PATIENT,
    )
    assert seen.clusters == (cluster_state(CLOUD),)
    assert (seen.unreachable, seen.misconfigured) == ({"onprem": "cluster 'onprem' is unreachable: 503"}, frozenset())
    assert seen.unreachable_clusters == (ONPREM,)
    assert seen.declared == (CLOUD, ONPREM)


def test_a_cluster_without_a_client_stays_declared() -> None:
    missing = Missing("Connection", "cloud_kubernetes", "Airflow")
    seen = observe({"cloud": missing, "onprem": well(ONPREM)}, now=NOW, deadline=PATIENT, declared={"cloud": CLOUD})
    assert seen.unreachable == {"cloud": "Connection 'cloud_kubernetes' is not in Airflow"}
    assert seen.misconfigured == {"cloud"}
    assert seen.unreachable_clusters == (CLOUD,)


def test_a_late_cluster_is_unreachable_and_the_others_are_not_waited_for_twice(released: threading.Event) -> None:
    def hang() -> ClusterState:
        released.wait()
        return cluster_state(CLOUD)

    clients: dict[str, ClusterClient | Any] = {
        f"hanging-{number}": AnsweringCluster(CLOUD, hang) for number in range(5)
    }
    seen = observe({**clients, "onprem": well(ONPREM)}, now=NOW, deadline=timedelta(seconds=2))
    assert seen.clusters == (cluster_state(ONPREM),)
    assert seen.unreachable == {f"hanging-{number}": "no complete answer within 2 s" for number in range(5)}


def test_all_clusters_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=60)

    def answer_of(cluster: Cluster) -> Callable[[], ClusterState]:
        def answer() -> ClusterState:
            together.wait()  # passes only when all three are being asked
            return cluster_state(cluster)

        return answer

    named = {name: onprem_cluster(name=name) for name in ("a", "b", "c")}
    clients = {name: AnsweringCluster(cluster, answer_of(cluster)) for name, cluster in named.items()}
    seen = observe(clients, now=NOW, deadline=PATIENT)
    assert [state.cluster.name for state in seen.clusters] == ["a", "b", "c"]


def test_a_fault_in_reading_one_cluster_is_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    seen = observe({"cloud": failing(CLOUD, KeyError("metadata")), "onprem": well(ONPREM)}, now=NOW, deadline=PATIENT)
    assert seen.unreachable == {"cloud": "reading it failed: KeyError: 'metadata'"}
    assert "reading cluster cloud failed" in caplog.text


def test_nothing_declared_is_nothing_seen() -> None:
    assert observe({}, now=NOW, deadline=PATIENT) == Snapshot(taken_at=NOW, clusters=())


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder in which the dataset ``digits`` is whole, by the record of its sync."""
    for folder in ("home", "copy"):
        (tmp_path / folder).mkdir()
    source = LocalStore(tmp_path / "home")
    source.put("digits/a", b"a", size_bytes=1)
    sync_dataset(
        source=source,
        destination=LocalStore(tmp_path / "copy"),
        dataset="digits",
        prefix="digits/",
    )
    return tmp_path / "copy"


def test_what_is_whole_at_a_site_is_read_while_the_clusters_are(copy: Path) -> None:
    together = threading.Barrier(2, timeout=60)

    def answer() -> ClusterState:
        together.wait()
        return cluster_state(CLOUD)

    class WaitingStore(LocalStore):
        def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
            together.wait()  # passes only when the cluster is being asked too
            return super().list(prefix)

    seen = observe(
        {"cloud": AnsweringCluster(CLOUD, answer)},
        now=NOW,
        deadline=PATIENT,
        stores={"cloud": WaitingStore(copy)},
        datasets={"digits": DatasetFacts(home="onprem", size_bytes=10**6)},
    )
    assert seen.clusters == (cluster_state(CLOUD),)
    assert seen.datasets_present == {("digits", "onprem"), ("digits", "cloud")}


def test_the_copy_at_a_site_without_core_data_tells_the_size_of_the_public_part(copy: Path) -> None:
    facts = DatasetFacts(home="onprem", size_bytes=10**6)
    for site in (CLOUD, onprem_cluster(name="cloud")):
        seen = observe(
            {"cloud": well(site)},
            now=NOW,
            deadline=PATIENT,
            stores={"cloud": LocalStore(copy)},
            datasets={"digits": facts},
        )
        part = None if site.may_hold(Tier.CORE) else 1
        assert seen.datasets == {"digits": DatasetFacts(home="onprem", size_bytes=1, public_bytes=part)}


@pytest.fixture
def _nobody_left() -> Iterator[None]:
    """Waits for who was left behind: an S3 client draws from ``random`` before it tries again, also in later tests."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("observe-"):
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.usefixtures("_nobody_left")
def test_of_a_store_that_accepts_and_never_answers_no_copy_is_known_and_nothing_waits_past_the_deadline(
    copy: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        dead = open_store(
            name="cloud", bucket="datasets", endpoint_url=endpoint, region="here", access_key="k", secret_key="s"
        )
        seen = observe(
            {"onprem": well(ONPREM), "cloud": well(CLOUD)},
            now=NOW,
            deadline=timedelta(seconds=4),
            stores={"onprem": LocalStore(copy), "cloud": dead},
            datasets={"faces": DatasetFacts(home="cloud")},
        )
    assert seen.clusters == (cluster_state(CLOUD), cluster_state(ONPREM))
    assert seen.unreachable == {}
    assert seen.datasets_present == {("digits", "onprem"), ("faces", "cloud")}
