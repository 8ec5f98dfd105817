"""Every gap between the declared clusters and a first run is named, with what to do, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spillway.errors import AccessDenied, Missing, SpillwayError, Unreachable
from spillway.model import Cluster, ClusterState, ObjectInfo
from spillway.preflight import Gap, SiteAccess, gap_table, preflight
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.stores.local import LocalStore
from spillway.stores.s3 import open_store
from spillway.testing.builders import NOW, cluster_state, node, node_pool, onprem_cluster
from spillway.testing.registry_server import RegistryServer
from spillway.testing.s3_server import S3Server

CLUSTER = onprem_cluster()


@dataclass
class KnownCluster:
    """A cluster in the state that a test gives it, asked as a real one would be."""

    state: ClusterState = field(default_factory=lambda: cluster_state(CLUSTER))
    time: datetime | None = NOW
    has_namespace: bool = True

    @property
    def cluster(self) -> Cluster:
        return self.state.cluster

    def describe(self) -> ClusterState:
        return self.state

    def namespace_exists(self) -> bool:
        return self.has_namespace

    def server_time(self) -> datetime | None:
        return self.time

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"preflight must not call {name}")


class StoreWithoutConditions(LocalStore):
    """A store that takes the conditions of a write and ignores them, as some do."""

    def put(self, key: str, body: bytes | Iterable[bytes], **fields: Any) -> ObjectInfo:
        return super().put(key, body, **(fields | {"if_absent": False, "if_match": None}))


class StoreWithoutDeletes(LocalStore):
    """A store that refuses every delete."""

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        return dict.fromkeys(keys, "AccessDenied")


@pytest.fixture
def site(tmp_path: Path) -> SiteAccess:
    """A site without gaps."""
    for name in ("datasets", "checkpoints"):
        (tmp_path / name).mkdir()
    return SiteAccess(
        cluster=CLUSTER,
        client=KnownCluster(),
        datasets=LocalStore(tmp_path / "datasets"),
        checkpoints=LocalStore(tmp_path / "checkpoints"),
        registry=LayoutRegistry(tmp_path / "images"),
    )


def gaps_of(*sites: SiteAccess, now: datetime = NOW) -> tuple[Gap, ...]:
    return preflight(sites, clock=lambda: now)


def the_gap(site: SiteAccess) -> Gap:
    (gap,) = gaps_of(site)
    return gap


def test_a_site_without_gaps_has_none_and_keeps_nothing_of_the_question(site: SiteAccess) -> None:
    assert gaps_of(site) == ()
    assert isinstance(site.checkpoints, LocalStore)
    assert list(site.checkpoints.list()) == []
    assert gap_table(()) == "no gaps: runs can start on every declared cluster"
    assert preflight(()) == ()


FAILURES = {
    "no Connection": (
        Missing("Connection", "onprem_kubernetes", "Airflow"),
        "create Connection 'onprem_kubernetes', or correct its name in clusters.yaml",
    ),
    "401": (
        AccessDenied("cluster 'onprem'", "401 Unauthorized", fix="renew"),
        "correct the credentials of Connection 'onprem_kubernetes', or grant them access",
    ),
    "unreachable": (
        Unreachable("cluster 'onprem'", "connection refused"),
        "check that the address in Connection 'onprem_kubernetes' is right and reachable from here, then ask again",
    ),
    "anything else": (
        SpillwayError("odd"),
        "correct Connection 'onprem_kubernetes' or the block of this cluster in clusters.yaml",
    ),
}


@pytest.mark.parametrize(("problem", "fix"), FAILURES.values(), ids=FAILURES)
def test_a_cluster_that_cannot_be_asked_is_a_gap_and_its_store_is_asked_all_the_same(
    site: SiteAccess, problem: SpillwayError, fix: str
) -> None:
    broken = replace(site, client=problem, registry=Unreachable("registry", "time-out"))
    assert [(gap.part, gap.problem) for gap in gaps_of(broken)] == [
        ("cluster", str(problem)),
        ("registry", "registry is unreachable: time-out"),
    ]
    assert gaps_of(broken)[0].fix == fix


def test_a_cluster_without_gpus_and_a_pool_without_nodes_are_gaps(site: SiteAccess) -> None:
    cluster = onprem_cluster(pools=(node_pool(), node_pool(name="h100", node_selector={"pool": "h100", "zone": "a"})))
    state = cluster_state(cluster, nodes=[node(allocatable_gpus=0)])
    gaps = gaps_of(replace(site, cluster=cluster, client=KnownCluster(state)))
    assert [(gap.cluster, gap.part, gap.problem) for gap in gaps] == [
        ("onprem", "nodes", "none of its 1 nodes has a GPU to give"),
        ("onprem", "pool h100", "no node matches its selector (pool=h100, zone=a)"),
    ]


def test_a_node_of_another_shape_than_declared_is_a_gap(site: SiteAccess) -> None:
    state = cluster_state(CLUSTER, nodes=[node(), node(name="a100-1", allocatable_gpus=4)])
    gap = the_gap(replace(site, client=KnownCluster(state)))
    assert (gap.part, gap.problem) == ("pool a100", "node a100-1 has 4 GPUs, declared are 8")


def test_a_missing_namespace_is_a_gap(site: SiteAccess) -> None:
    assert the_gap(replace(site, client=KnownCluster(has_namespace=False))) == Gap(
        cluster="onprem",
        part="namespace",
        problem="namespace 'training' does not exist",
        fix="kubectl create namespace training, or correct it in clusters.yaml",
    )


@pytest.mark.parametrize("seconds", [-6, 6])
def test_a_clock_that_differs_by_more_than_the_tolerance_is_a_gap(site: SiteAccess, seconds: int) -> None:
    skewed = replace(site, client=KnownCluster(time=NOW + timedelta(seconds=seconds)))
    assert the_gap(skewed).problem == "its clock and the one here differ by 6 s, more than 5 s"


def test_a_clock_within_the_tolerance_is_none(site: SiteAccess) -> None:
    assert gaps_of(replace(site, client=KnownCluster(time=NOW + timedelta(seconds=5)))) == ()


def test_a_clock_that_is_not_told_is_not_taken_for_a_right_one(site: SiteAccess) -> None:
    gap = the_gap(replace(site, client=KnownCluster(time=None)))
    assert (gap.part, gap.problem.partition(",")[0]) == ("clock", "its API does not say what time it is")


def test_a_store_that_ignores_conditions_is_found_by_trying(site: SiteAccess, tmp_path: Path) -> None:
    store = StoreWithoutConditions(tmp_path / "checkpoints")
    gaps = gaps_of(replace(site, checkpoints=store))
    assert [(gap.part, gap.problem) for gap in gaps] == [
        ("bucket checkpoints", f"{store.name} ignores the condition If-None-Match of a write"),
        ("bucket checkpoints", f"{store.name} ignores the condition If-Match of a write"),
    ]
    assert list(store.list()) == []


def test_a_store_that_keeps_everything_for_ever_is_a_gap(site: SiteAccess, tmp_path: Path) -> None:
    gap = the_gap(replace(site, checkpoints=StoreWithoutDeletes(tmp_path / "checkpoints")))
    assert gap.problem.endswith("be deleted: AccessDenied")


def test_the_gaps_are_a_table_in_the_order_of_the_sites(site: SiteAccess) -> None:
    cloud = replace(site, cluster=onprem_cluster(name="cloud-eu"), registry=Unreachable("r", "x"))
    onprem = replace(site, client=KnownCluster(has_namespace=False))
    fix = "check that the address in Connection 'onprem_registry' is right and reachable from here, then ask again"
    assert gap_table(gaps_of(cloud, onprem)).splitlines() == [
        "CLUSTER   PART       PROBLEM -> WHAT TO DO",
        f"cloud-eu  registry   r is unreachable: x -> {fix}",
        "onprem    namespace  namespace 'training' does not exist -> "
        "kubectl create namespace training, or correct it in clusters.yaml",
    ]


def test_a_real_store_and_registry_have_no_gaps(
    site: SiteAccess, s3_server: S3Server, registries: Mapping[str, RegistryServer]
) -> None:
    checkpoints = s3_server.store()
    registry = registries["onprem"].client()
    assert gaps_of(replace(site, datasets=s3_server.store(), checkpoints=checkpoints, registry=registry)) == ()
    assert list(checkpoints.list()) == []


def test_missing_buckets_and_wrong_passwords_are_gaps(
    site: SiteAccess, s3_server: S3Server, registries: Mapping[str, RegistryServer]
) -> None:
    forged = open_store(
        name="onprem",
        bucket=s3_server.new_bucket(),
        endpoint_url=s3_server.endpoint_url,
        region=s3_server.region,
        access_key=s3_server.admin.access_key,
        secret_key="wrong",
    )
    gaps = gaps_of(
        replace(
            site,
            datasets=s3_server.open("not-there-yet"),
            checkpoints=forged,
            registry=HttpRegistry(name="onprem", url=registries["onprem"].url, username="mover", password="wrong"),
        )
    )
    assert [(gap.part, gap.fix) for gap in gaps] == [
        (
            "bucket datasets",
            "create the bucket, or correct its name in clusters.yaml (Connection 'onprem_store' was accepted)",
        ),
        ("bucket checkpoints", "correct the credentials of Connection 'onprem_store', or grant them access"),
        ("registry", "correct the credentials of Connection 'onprem_registry', or grant them access"),
    ]
