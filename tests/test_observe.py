"""One snapshot of all clusters: in parallel, within a deadline, and never empty for want of an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from spillway.clouds.base import ClusterClient
from spillway.errors import Missing, Unreachable
from spillway.model import Cluster, ClusterState, Snapshot
from spillway.observe import observe
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
    present = frozenset({("digits", "onprem")})
    seen = observe({"onprem": well(ONPREM), "cloud": well(CLOUD)}, now=NOW, deadline=PATIENT, datasets_present=present)
    assert seen == Snapshot(
        taken_at=NOW, clusters=(cluster_state(CLOUD), cluster_state(ONPREM)), datasets_present=present
    )


def test_a_cluster_that_fails_is_unreachable_with_its_cause_and_hides_no_other() -> None:
    seen = observe(
        {"onprem": failing(ONPREM, Unreachable("cluster 'onprem'", "503")), "cloud": well(CLOUD)},
        now=NOW,
        deadline=PATIENT,
    )
    assert seen.clusters == (cluster_state(CLOUD),)
    assert seen.unreachable == {"onprem": "cluster 'onprem' is unreachable: 503"}
    assert seen.unreachable_clusters == (ONPREM,)
    assert seen.declared == (CLOUD, ONPREM)


def test_a_cluster_without_a_client_stays_declared() -> None:
    missing = Missing("Connection", "cloud_kubernetes", "Airflow")
    seen = observe({"cloud": missing, "onprem": well(ONPREM)}, now=NOW, deadline=PATIENT, declared={"cloud": CLOUD})
    assert seen.unreachable == {"cloud": "Connection 'cloud_kubernetes' is not in Airflow"}
    assert seen.unreachable_clusters == (CLOUD,)


def test_a_late_cluster_is_unreachable_and_the_others_are_not_waited_for_twice(released: threading.Event) -> None:
    def hang() -> ClusterState:
        released.wait()
        return cluster_state(CLOUD)

    clients: dict[str, ClusterClient | Any] = {
        f"hanging-{number}": AnsweringCluster(CLOUD, hang) for number in range(5)
    }
    seen = observe({**clients, "onprem": well(ONPREM)}, now=NOW, deadline=timedelta(seconds=1))
    assert seen.clusters == (cluster_state(ONPREM),)
    assert seen.unreachable == {f"hanging-{number}": "no complete answer within 1 s" for number in range(5)}


def test_all_clusters_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=30)

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
