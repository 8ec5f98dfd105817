"""Departments' GPUs: floors of declared capacity, and one rest that they share."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.model import QuotaShare, SiteKind
from spillway.quota import DepartmentGpus, department_gpus, gpus_in_use
from spillway.testing.builders import cloud_cluster, cloud_pool, node_pool, onprem_cluster, reservation

QUOTAS = {
    "production": QuotaShare(onprem=Decimal("0.8"), cloud=Decimal("0.5")),
    "research": QuotaShare(onprem=Decimal("0.2"), cloud=Decimal("0.3")),
}
CLUSTERS = (
    onprem_cluster(pools=(node_pool(max_nodes=1), node_pool(name="v100", gpus_per_node=3, max_nodes=2))),
    cloud_cluster(pools=(cloud_pool(max_nodes=2),)),
    cloud_cluster(name="cloud-2", pools=(cloud_pool(max_nodes=1),)),
)


@pytest.mark.parametrize(
    ("kind", "gpus"),
    [
        (SiteKind.ONPREM, DepartmentGpus(own={"production": 11, "research": 2}, rest=1)),
        (SiteKind.CLOUD, DepartmentGpus(own={"production": 12, "research": 7}, rest=5)),
    ],
    ids=["14 local GPUs", "24 cloud GPUs of two clusters"],
)
def test_shares_are_whole_gpus_of_the_declared_maximum_and_the_rest_is_shared(
    kind: SiteKind, gpus: DepartmentGpus
) -> None:
    assert department_gpus(QUOTAS, CLUSTERS, kind) == gpus


def test_production_and_research_have_their_parts_of_32_local_and_64_cloud_gpus() -> None:
    clusters = (onprem_cluster(), cloud_cluster(pools=(cloud_pool(max_nodes=8),)))
    quotas = {
        "production": QuotaShare(onprem=Decimal("0.8"), cloud=Decimal("0.5")),
        "research": QuotaShare(onprem=Decimal("0.2"), cloud=Decimal("0.3")),
    }
    local = department_gpus(quotas, clusters, SiteKind.ONPREM)
    cloud = department_gpus(quotas, clusters, SiteKind.CLOUD)
    assert local == DepartmentGpus(own={"production": 25, "research": 6}, rest=1)
    assert cloud == DepartmentGpus(own={"production": 32, "research": 19}, rest=13)


GPUS = DepartmentGpus(own={"production": 8, "research": 4}, rest=4)


@pytest.mark.parametrize(
    ("department", "used", "available"),
    [
        ("research", {}, 8),
        ("research", {"research": 3}, 5),
        ("research", {"production": 8}, 8),
        ("research", {"production": 11}, 5),
        ("research", {"production": 12}, 4),
        ("research", {"production": 40}, 4),
        ("research", {"research": 6, "production": 10}, 0),
        ("research", {"research": 40}, 0),
        ("marketing", {}, 0),
    ],
    ids=[
        "own and rest", "own partly used", "others within their own", "others use a part of the rest",
        "others use the whole rest", "others use more than is declared", "both in the rest", "more than is declared",
        "no quota",
    ],
)  # fmt: skip
def test_what_a_department_may_still_take(department: str, used: dict[str, int], available: int) -> None:
    assert GPUS.available(department, used) == available


@pytest.mark.parametrize(
    ("used", "available"),
    [
        ({}, 16),
        ({"production": 8}, 8),
        ({"production": 3, "research": 9}, 4),
        ({"production": 12, "research": 4}, 0),
        ({"production": 12, "research": 9}, 0),
    ],
    ids=[
        "all of it",
        "what the other leaves",
        "its own, the rest and more",
        "nothing is left",
        "more than is declared",
    ],
)
def test_what_may_be_interrupted_may_borrow_what_others_leave(used: dict[str, int], available: int) -> None:
    assert GPUS.available("research", used, borrowing=True) == available
    assert GPUS.available("marketing", used, borrowing=True) == 0


def test_what_others_have_borrowed_is_still_its_owners_to_claim() -> None:
    borrowed = {"research": 16}
    assert GPUS.available("production", borrowed) == 8
    assert GPUS.available("production", borrowed, borrowing=True) == 0


@given(
    takes=st.lists(st.tuples(st.sampled_from(["production", "research"]), st.integers(1, 6)), max_size=20),
    shares=st.tuples(st.integers(0, 50), st.integers(0, 50)),
)
def test_departments_together_never_take_more_than_is_declared(
    takes: list[tuple[str, int]], shares: tuple[int, int]
) -> None:
    quotas = {
        name: QuotaShare(onprem=Decimal(part) / 100, cloud=Decimal(0))
        for name, part in zip(("production", "research"), shares, strict=True)
    }
    gpus = department_gpus(quotas, CLUSTERS, SiteKind.ONPREM)
    used: dict[str, int] = {}
    for department, wanted in takes:
        if wanted <= gpus.available(department, used):
            used[department] = used.get(department, 0) + wanted
    assert sum(used.values()) <= 14


def test_reservations_count_for_their_department_on_their_kind_of_site() -> None:
    held = (
        reservation(attempt="a-1", gpus_per_node=2, nodes=2),
        reservation(attempt="b-1", gpus_per_node=1),
        reservation(attempt="c-1", department="production", gpus_per_node=3),
        reservation(attempt="d-1", cluster="cloud-2", gpus_per_node=8),
        reservation(attempt="e-1", cluster="no longer declared", gpus_per_node=8),
    )
    assert gpus_in_use(held, CLUSTERS, SiteKind.ONPREM) == {"research": 5, "production": 3}
    assert gpus_in_use(held, CLUSTERS, SiteKind.CLOUD) == {"research": 8}
