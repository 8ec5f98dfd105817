"""Every gap between the declared clusters and a first run is named, with what to do, and nothing is left behind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from spillway.clouds.kubernetes import KubernetesCluster, client_from_kubeconfig
from spillway.clouds.rights import RIGHTS, SCALING_RIGHTS, Right, rights_for
from spillway.errors import AccessDenied, Missing, SpillwayError, Unreachable
from spillway.model import GpuShare, PoolUse, ScaledBy
from spillway.preflight import Gap, SiteAccess, gap_table, merged, preflight
from spillway.sandbox.settings import PROJECT
from spillway.stores.local import LocalStore
from spillway.testing.builders import cloud_cluster, cluster_state, node, node_pool, onprem_cluster
from spillway.testing.kube_server import KubeCluster
from spillway.testing.preflighted import CLUSTER, KnownCluster, the_gap, whole_site
from spillway.testing.scripted_api import Answer, scripted_api


@pytest.fixture
def site(tmp_path: Path) -> SiteAccess:
    return whole_site(tmp_path)


def test_a_site_without_gaps_has_none_and_keeps_nothing_of_the_question(site: SiteAccess) -> None:
    assert preflight([site]) == ()
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
        "renew (its Connection 'onprem_kubernetes')",
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
    assert [(gap.part, gap.problem) for gap in preflight([broken])] == [
        ("cluster", problem.told),
        ("registry", "registry is unreachable: time-out"),
    ]
    assert preflight([broken])[0].fix == fix


def test_a_cluster_without_gpus_and_a_pool_without_nodes_are_gaps(site: SiteAccess) -> None:
    cluster = onprem_cluster(pools=(node_pool(), node_pool(name="h100", node_selector={"pool": "h100", "zone": "a"})))
    state = cluster_state(cluster, nodes=[node(allocatable_gpus=0)])
    gaps = preflight([replace(site, cluster=cluster, client=KnownCluster(state))])
    assert [(gap.cluster, gap.part, gap.problem, gap.checked) for gap in gaps] == [
        ("onprem", "nodes", "of 1 node in its pools with GPUs none has one to give", True),
        ("onprem", "pool h100", "no node matches its selector (pool=h100, zone=a)", True),
    ]


def test_a_cloud_without_nodes_may_be_one_that_scales_from_zero(site: SiteAccess) -> None:
    cluster = cloud_cluster()
    state = cluster_state(cluster, nodes=[node(name="system-0", pool=None, allocatable_gpus=0)])
    gap = the_gap(replace(site, cluster=cluster, client=KnownCluster(state)))
    assert (gap.part, gap.checked) == (f"pool {cluster.pools[0].name}", False)
    assert gap.fix.endswith("; nothing, if it scales from zero")


def test_a_pool_whose_nodes_another_pool_has_is_a_gap_that_names_both(site: SiteAccess) -> None:
    by_shape, by_name = (
        node_pool(node_selector={"gpu": "a100"}),
        node_pool(name="own", node_selector={"name": "a100-0"}),
    )
    cluster = onprem_cluster(pools=(by_shape, by_name))
    lost, other = node(also_matches=("own",)), node(name="a100-1", pool="own")
    for nodes in ([lost], [lost, other]):
        state = cluster_state(cluster, nodes=nodes)
        gap = the_gap(replace(site, cluster=cluster, client=KnownCluster(state)))
        assert (gap.part, gap.problem) == (
            "pool own",
            "its selector (name=a100-0) matches node a100-0 too, which pool a100 has",
        )
        assert gap.checked and "the first in clusters.yaml" in gap.fix


def test_a_pool_that_gets_what_more_specific_ones_leave_has_a_gap_where_they_leave_nothing(site: SiteAccess) -> None:
    cluster = onprem_cluster(pools=(node_pool(name="any"), node_pool(node_selector={"gpu": "a100"})))
    lost = [node(name=f"a100-{index}", also_matches=("any",)) for index in range(2)]
    state = cluster_state(cluster, nodes=[*lost, node(name="spare", pool="any")])
    assert preflight([replace(site, cluster=cluster, client=KnownCluster(state))]) == ()
    state = cluster_state(cluster, nodes=lost)
    gap = the_gap(replace(site, cluster=cluster, client=KnownCluster(state)))
    assert gap.problem == "its selector (every node) matches node a100-0 too, which pool a100 has, and 1 more"


def test_a_node_of_another_shape_than_declared_is_a_gap(site: SiteAccess) -> None:
    state = cluster_state(CLUSTER, nodes=[node(), node(name="a100-1", allocatable_gpus=4)])
    gap = the_gap(replace(site, client=KnownCluster(state)))
    assert (gap.part, gap.problem) == ("pool a100", "node a100-1 has 4 nvidia.com/gpu, declared are 8")


def test_a_node_with_another_number_of_parts_than_declared_is_a_gap(site: SiteAccess) -> None:
    halves = GpuShare(resource="nvidia.com/mig-3g.40gb", per_gpu=2, memory_gib=40)
    cluster = onprem_cluster(pools=(node_pool(gpu_share=halves),))
    state = cluster_state(cluster, nodes=[node(allocatable_gpus=16), node(name="a100-1", allocatable_gpus=8)])
    gap = the_gap(replace(site, cluster=cluster, client=KnownCluster(state)))
    assert gap.problem == "node a100-1 has 8 nvidia.com/mig-3g.40gb, declared are 16"


def test_rights_that_are_missing_are_named_with_the_rule_that_grants_them(site: SiteAccess) -> None:
    lacking = (
        Right(resource="nodes", verbs=("list",), everywhere=True),
        Right(resource="namespaces", verbs=("get",)),
        Right(resource="jobs", verbs=("create", "delete"), group="batch"),
    )
    gaps = preflight([replace(site, client=KnownCluster(lacking=lacking))])
    identity = "the identity of Connection 'onprem_kubernetes' may not"
    assert [(gap.part, gap.problem, gap.fix.partition(";")[0]) for gap in gaps] == [
        (
            "rights",
            f"{identity} list nodes at cluster scope",
            'bind it to a ClusterRole with {apiGroups: [""], resources: [nodes], verbs: [list]}',
        ),
        (
            "rights",
            f"{identity} get namespaces in namespace 'training'",
            "bind it to a Role of namespace 'training' with {apiGroups: [\"\"], resources: [namespaces], verbs: [get]}",
        ),
        (
            "rights",
            f"{identity} create, delete jobs in namespace 'training'",
            "bind it to a Role of namespace 'training' with "
            '{apiGroups: ["batch"], resources: [jobs], verbs: [create, delete]}',
        ),
    ]


def test_rights_that_a_cluster_does_not_tell_are_no_gap_and_hide_none(site: SiteAccess) -> None:
    rights, namespace = preflight([replace(site, client=KnownCluster(lacking=None, has_namespace=False))])
    assert (rights.part, rights.problem.partition(":")[0], rights.checked) == ("rights", "not checked", False)
    assert (namespace.part, namespace.checked) == ("namespace", True)


def test_the_roles_in_the_documentation_are_the_rights_that_are_checked() -> None:
    manifests = [block for block in fenced_yaml(PROJECT / "docs" / "clusters.md") if "kind: ClusterRole" in block]
    granted = [
        {
            Right(resource=resource, verbs=tuple(rule["verbs"]), group=group, everywhere=role["kind"] == "ClusterRole")
            for role in yaml.safe_load_all(manifest)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        for manifest in manifests
    ]
    assert granted == [set(RIGHTS), set(SCALING_RIGHTS)]


@pytest.mark.parametrize(
    ("provider", "rights"),
    [
        pytest.param(None, RIGHTS, id="nothing scales it"),
        pytest.param("eks", (*RIGHTS, SCALING_RIGHTS[0]), id="a node group"),
        pytest.param("placeholders", (*RIGHTS, *SCALING_RIGHTS), id="placeholder pods"),
    ],
)
def test_a_cluster_whose_pools_are_scaled_needs_more_rights(provider: str | None, rights: tuple[Right, ...]) -> None:
    pool = node_pool(scaled_by=ScaledBy(provider=provider) if provider else None)
    assert rights_for(onprem_cluster(pools=(pool,))) == rights


def test_without_the_right_to_cordon_a_cluster_is_looked_at_all_the_same(site: SiteAccess) -> None:
    gap = the_gap(replace(site, client=KnownCluster(lacking=SCALING_RIGHTS[:1])))
    assert gap.problem == "the identity of Connection 'onprem_kubernetes' may not patch nodes at cluster scope"


@dataclass
class KnownPools:
    """A scaler that a test tells what to find."""

    found: PoolUse | SpillwayError

    def pools(self, *, mark: bool = True) -> dict[str, PoolUse | SpillwayError]:
        assert not mark, "preflight leaves nothing behind"
        return {"a100": self.found}

    def set_target(self, *_: Any, **__: Any) -> tuple[str, ...]:
        raise AssertionError("preflight must not scale")


def test_a_pool_whose_provider_gives_no_answer_or_not_what_was_asked_for_is_a_gap(site: SiteAccess) -> None:
    pool = node_pool(scaled_by=ScaledBy(provider="eks", connection="aws", cluster="c", node_group="g"))
    cluster = onprem_cluster(pools=(pool,))
    lacking = PoolUse(cluster="onprem", pool=pool, wanted=3, nodes=(), problem="the limit is 0 vCPU")
    seen = [
        the_gap(replace(site, cluster=cluster, scaler=KnownPools(found)))
        for found in (Unreachable("AWS", "no answer"), Missing("node group", "g", "AWS", fix="make it"), lacking)
    ]
    assert [(gap.part, gap.problem, gap.fix) for gap in seen] == [
        (
            "pool a100",
            "AWS is unreachable: no answer",
            "check that the address in Connection 'aws' is right and reachable from here, then ask again",
        ),
        ("pool a100", "node group 'g' is not in AWS", "make it"),
        (
            "pool a100",
            "its provider does not bring 3 nodes as asked: the limit is 0 vCPU",
            "have its quota raised, or correct the node group",
        ),
    ]


def fenced_yaml(document: Path) -> list[str]:
    return [block.partition("```")[0] for block in document.read_text().split("```yaml\n")[1:]]


def test_a_missing_namespace_is_a_gap(site: SiteAccess) -> None:
    assert the_gap(replace(site, client=KnownCluster(has_namespace=False))) == Gap(
        cluster="onprem",
        part="namespace",
        problem="namespace 'training' does not exist",
        fix="kubectl create namespace training, or correct it in clusters.yaml",
    )


@pytest.mark.parametrize("seconds", [-6, 6])
def test_a_clock_that_differs_by_more_than_the_tolerance_is_a_gap(site: SiteAccess, seconds: int) -> None:
    skewed = replace(site, client=KnownCluster(clock_ahead=timedelta(seconds=seconds)))
    assert the_gap(skewed).problem == "its clock and the one here differ by 6 s, more than 5 s"


def test_a_clock_within_the_tolerance_is_none(site: SiteAccess) -> None:
    assert preflight([replace(site, client=KnownCluster(clock_ahead=timedelta(seconds=5)))]) == ()


def test_a_clock_that_is_not_told_is_not_taken_for_a_right_one(site: SiteAccess) -> None:
    gap = the_gap(replace(site, client=KnownCluster(clock_ahead=None)))
    assert (gap.part, gap.problem.partition(",")[0]) == ("clock", "its API does not say what time it is")


def test_the_gaps_are_a_table_in_the_order_of_the_sites(site: SiteAccess) -> None:
    cloud = replace(site, cluster=onprem_cluster(name="cloud-eu"), registry=Unreachable("r", "x"))
    onprem = replace(site, client=KnownCluster(has_namespace=False))
    fix = "check that the address in Connection 'onprem_registry' is right and reachable from here, then ask again"
    assert gap_table(preflight([cloud, onprem])).splitlines() == [
        "CLUSTER   PART       PROBLEM -> WHAT TO DO",
        f"cloud-eu  registry   r is unreachable: x -> {fix}",
        "onprem    namespace  namespace 'training' does not exist -> "
        "kubectl create namespace training, or correct it in clusters.yaml",
    ]


def test_an_identity_that_may_only_look_lacks_what_it_takes_to_run(site: SiteAccess, kube_api: KubeCluster) -> None:
    tokens = kube_api.directory / "tokens"
    before = tokens.read_text()
    tokens.write_text(f"{before}looks-only,viewer\n")
    kube_api.api.kill()
    kube_api.api.start()
    user = {"name": kube_api.name, "user": {"token": "looks-only"}}
    api_client = client_from_kubeconfig(kube_api.kubeconfig | {"users": [user]})

    looking = KubernetesCluster(cluster=CLUSTER, api_client=api_client)
    administrator = KubernetesCluster(cluster=CLUSTER, api_client=client_from_kubeconfig(kube_api.kubeconfig))

    assert {(right.resource, right.verbs) for right in looking.missing_rights() or ()} == {
        ("pods", ("create", "delete")),
        ("secrets", ("create", "update")),
        ("configmaps", ("create", "update")),
        ("secrets", ("delete",)),
        ("configmaps", ("delete",)),
        ("services", ("create", "patch")),
        ("jobs", ("create", "delete")),
    }
    parts = [gap.part for gap in preflight([replace(site, client=looking)])]
    assert parts == ["rights"] * 7 + ["pool a100", "pool a100", "namespace"], "what it may see is checked"
    with pytest.raises(AccessDenied, match="403"):
        looking.apply([{"kind": "Secret", "metadata": {"name": "any"}}])
    assert administrator.missing_rights() == ()


def test_a_cluster_that_does_not_know_the_question_is_not_checked() -> None:
    with scripted_api(Answer(status=404)) as api:
        assert KubernetesCluster(cluster=CLUSTER, api_client=api.client()).missing_rights() is None


def test_parts_with_the_same_problem_are_one_gap() -> None:
    gap = Gap(cluster="onprem", part="bucket a", problem="no Connection", fix="create it")
    alike, other = replace(gap, part="bucket b"), replace(gap, cluster="cloud")
    assert merged((gap, other, alike)) == (replace(gap, part="bucket a, bucket b"), other)
