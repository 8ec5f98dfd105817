"""What each priority prefers under the shipped weights, and the terms that decide within a preference."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from spillway.config import configuration_directory, load
from spillway.model import Billing, Cluster, DatasetFacts, DatasetUse, Priority, SecondChoice, SiteKind, Snapshot, Tier
from spillway.placement.explain import name
from spillway.placement.policy import place
from spillway.testing.builders import (
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    pod,
    snapshot,
)

UPPER = (Priority.PRODUCTION_CORE, Priority.PRODUCTION_REGULAR, Priority.CUSTOMER_SERVICE)
LOWER = (Priority.RESEARCH, Priority.EXPLORATION)
ALL = (*UPPER, *LOWER)

CLOUD = cloud_cluster(
    pools=(
        cloud_pool(),
        cloud_pool(
            name="a100", gpu_model="A100", prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(4), Billing.SPOT: Decimal(1)}
        ),
    )
)


def two_sites(*, local_price: str = "2.5", local_busy: bool = False) -> Snapshot:
    """Local is dearer than any cloud where asked for, and the data is only in the cloud."""
    pool = node_pool(max_nodes=1, prices_per_gpu_hour={Billing.OWNED: Decimal(local_price)})
    pods = (pod(gpus=8, node="a100-0"),) if local_busy else ()
    return snapshot(
        cluster_state(onprem_cluster(pools=(pool,)), pods=pods),
        cluster_state(CLOUD),
        datasets_present=frozenset({("digits", "cloud")}),
    )


LOCAL, LOCAL_DEAR, FULL = two_sites(), two_sites(local_price="100"), two_sites(local_busy=True)


@pytest.mark.parametrize(
    ("priorities", "seen", "spot_ok", "chosen"),
    [
        (ALL, LOCAL, True, "onprem/a100/owned"),
        (ALL, LOCAL, False, "onprem/a100/owned"),
        (ALL, LOCAL_DEAR, True, "onprem/a100/owned"),
        (UPPER, FULL, True, "cloud/h100/on-demand"),
        (UPPER, FULL, False, "cloud/h100/on-demand"),
        (LOWER, FULL, True, "cloud/a100/spot"),
        (LOWER, FULL, False, "cloud/a100/on-demand"),
    ],
    ids=[
        "local first",
        "local first without spot",
        "local first though the cloud is cheaper and has the data",
        "upper: local is full",
        "upper: local is full, no spot",
        "lower: local is full",
        "lower: local is full, no spot",
    ],
)
def test_where_each_priority_goes(priorities: tuple[Priority, ...], seen: Snapshot, spot_ok: bool, chosen: str) -> None:
    for priority in priorities:
        decision = place(job_spec(priority=priority, spot_ok=spot_ok, dataset="digits"), seen, placement_policy())
        assert decision.chosen is not None
        assert (priority, name(decision.chosen)) == (priority, chosen)


def test_a_priority_goes_where_the_policy_says_when_on_premises_is_full() -> None:
    turned = {p: SecondChoice.SPOT if p in UPPER else SecondChoice.HIGH_PERFORMANCE for p in ALL}
    policy = placement_policy(second_choice=turned)
    for priority, choice in turned.items():
        decision = place(job_spec(priority=priority, spot_ok=True, dataset="digits"), FULL, policy)
        assert decision.chosen is not None
        assert (decision.chosen.billing is Billing.SPOT) == (choice is SecondChoice.SPOT)


def test_the_shipped_weights_and_second_choices_are_the_ones_tested_here() -> None:
    shipped, tested = load(configuration_directory({})).policy, placement_policy()
    assert (shipped.weights, shipped.second_choice) == (tested.weights, tested.second_choice)


def scores_of(seen: Snapshot, term: str, **job: object) -> dict[str, float]:
    decision = place(job_spec(**job), seen, placement_policy())
    return {name(verdict.candidate): round(verdict.scores[term], 4) for verdict in decision.verdicts}


def priced(**prices: str) -> Snapshot:
    """A cluster for each price."""
    return snapshot(
        *(
            cluster_state(
                onprem_cluster(name=cluster, pools=(node_pool(prices_per_gpu_hour={Billing.OWNED: Decimal(price)}),))
            )
            for cluster, price in prices.items()
        )
    )


@pytest.mark.parametrize(
    ("prices", "scores"),
    [
        ({"a": "2", "b": "8", "c": "4"}, {"a": 0.75, "b": 0.0, "c": 0.5}),
        ({"a": "0", "b": "8"}, {"a": 1.0, "b": 0.0}),
        ({"a": "0", "b": "0"}, {"a": 1.0, "b": 1.0}),
        ({"a": "3"}, {"a": 0.0}),
    ],
    ids=["linear", "free local", "all free", "one"],
)
def test_the_cost_term_is_defined_for_every_price(prices: dict[str, str], scores: dict[str, float]) -> None:
    assert scores_of(priced(**prices), "cost") == {f"{cluster}/a100/owned": score for cluster, score in scores.items()}


@pytest.mark.parametrize(
    ("job", "present", "scores"),
    [
        ({"dataset": "digits"}, {("digits", "b")}, {"a": 0.0, "b": 1.0}),
        ({"dataset": "digits"}, {("faces", "b")}, {"a": 0.0, "b": 0.0}),
        ({"dataset": None}, set(), {"a": 1.0, "b": 1.0}),
    ],
    ids=["verified at one site", "another dataset", "no dataset"],
)
def test_affinity_is_for_sites_where_the_dataset_is_verified(
    job: dict[str, str | None], present: set[tuple[str, str]], scores: dict[str, float]
) -> None:
    seen = snapshot(
        cluster_state(onprem_cluster(name="a")),
        cluster_state(onprem_cluster(name="b")),
        datasets_present=frozenset(present),
    )
    assert scores_of(seen, "affinity", **job) == {f"{cluster}/a100/owned": score for cluster, score in scores.items()}


def test_beside_core_data_a_copy_of_the_whole_is_none_of_its_public_part() -> None:
    store = replace(onprem_cluster().object_store, public_pod_connection="onprem_store_public_pods")
    sites = (*(onprem_cluster(name=site, object_store=store) for site in ("a", "b", "home")), cloud_cluster())
    present = {("digits", "a"), ("digits@public", "b"), ("digits", "cloud"), ("digits", "home")}
    seen = snapshot(
        *map(cluster_state, sites),
        datasets={"digits": DatasetFacts(home="home")},
        datasets_present=frozenset(present),
    )
    part = DatasetUse(name="digits", part=Tier.PUBLIC)
    assert [site.name for site in sites if seen.has(part, site)] == ["b", "home", "cloud"]
    found = scores_of(seen, "affinity", datasets=(part,))
    assert {place.partition("/")[0] for place, score in found.items() if score} == {"b", "home", "cloud"}


def test_between_equal_clouds_the_one_with_the_data_is_chosen() -> None:
    def cloud(cluster: str) -> Cluster:
        return cloud_cluster(name=cluster, kind=SiteKind.CLOUD)

    seen = snapshot(cluster_state(cloud("a")), cluster_state(cloud("b")), datasets_present=frozenset({("digits", "b")}))
    decision = place(job_spec(dataset="digits"), seen, placement_policy())
    assert decision.chosen is not None
    assert name(decision.chosen) == "b/h100/on-demand"
