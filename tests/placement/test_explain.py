"""The table that a person reads under a decision."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.model import Billing, DatasetFacts, Snapshot, Tier
from spillway.placement.explain import clusters, headline, inputs, rows, table, why_not
from spillway.placement.policy import place
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    onprem_cluster,
    placement_policy,
    snapshot,
)

PRICELESS = cloud_pool(name="l40s", gpu_model="L40S", prices_per_gpu_hour={Billing.ON_DEMAND: Decimal("NaN")})
DECISION = place(
    job_spec(),
    snapshot(
        cluster_state(onprem_cluster(), nodes=()),
        cluster_state(cloud_cluster(pools=(cloud_pool(), PRICELESS))),
    ),
    placement_policy(),
)


def test_the_table_is_aligned_and_has_every_candidate_with_its_terms_and_reasons() -> None:
    assert table(DECISION) == "\n".join([
        "job 'digits' at 2026-01-05T12:00:00+00:00: placed on cloud/h100/on-demand",
        "candidate             price/GPU-h  affinity  cost   qos    total  verdict  reasons",
        "cloud/h100/on-demand  8.0          1.000     0.000  0.000  0.150  chosen",
        "onprem/a100/owned     2.5          1.000     0.688  1.000  0.953  waits    "
        "waiting-for-nodes: waiting for nodes in pool a100",
        "cloud/h100/spot       2.8          1.000     0.650  0.500  0.598  never    "
        "interruption: may not be interrupted (spot_ok is false)",
        "cloud/l40s/on-demand  -            -         -      -      0.000  never    "
        "price: no price to compare: NaN declared",
    ])  # fmt: skip


def test_rows_are_plain_data_in_the_same_order() -> None:
    first, second, *_, last = rows(DECISION)
    assert first == {
        "candidate": "cloud/h100/on-demand",
        "price_per_gpu_hour": "8.0",
        "qos": 0.0,
        "cost": 0.0,
        "affinity": 1.0,
        "total": 0.15,
        "verdict": "chosen",
        "reasons": [],
    }
    assert (second["verdict"], second["reasons"]) == (
        "waits",
        ["waiting-for-nodes: waiting for nodes in pool a100"],
    )
    assert (last["candidate"], last["price_per_gpu_hour"]) == ("cloud/l40s/on-demand", None)


def test_the_headline_tells_waiting_from_never() -> None:
    empty = snapshot(cluster_state(onprem_cluster(), nodes=()))
    waits = place(job_spec(), empty, placement_policy())
    never = place(job_spec(tier=Tier.CORE), snapshot(cluster_state(cloud_cluster())), placement_policy())
    assert headline(waits) == "job 'digits' at 2026-01-05T12:00:00+00:00: waits, nothing fits now"
    assert headline(never) == "job 'digits' at 2026-01-05T12:00:00+00:00: can never be placed"


def test_a_decision_without_candidates_is_still_a_table() -> None:
    nothing = place(job_spec(), snapshot(cluster_state(cloud_cluster(pools=()))), placement_policy())
    assert table(nothing).splitlines() == [headline(nothing), "candidate  price/GPU-h  total  verdict  reasons"]


@pytest.mark.parametrize(
    ("misconfigured", "nodes", "waits_for"),
    [
        ({"onprem", "cloud"}, {}, "until the configuration is corrected, not for a place"),
        ({"onprem"}, {"nodes": ()}, "nothing fits now"),
    ],
    ids=["everywhere", "not everywhere"],
)
def test_waiting_for_a_correction_is_told_from_waiting_for_a_place(
    misconfigured: set[str], nodes: dict[str, tuple[()]], waits_for: str
) -> None:
    seen = Snapshot(
        taken_at=NOW,
        clusters=() if "cloud" in misconfigured else (cluster_state(cloud_cluster(), **nodes),),
        unreachable=dict.fromkeys(misconfigured, "no Connection"),
        misconfigured=frozenset(misconfigured),
        unreachable_clusters=tuple(c for c in (onprem_cluster(), cloud_cluster()) if c.name in misconfigured),
    )
    decision = place(job_spec(), seen, placement_policy())
    assert decision.needs_correction is (len(misconfigured) == 2)
    assert headline(decision).endswith(f": waits {waits_for}" if len(misconfigured) == 2 else f": waits, {waits_for}")


def test_why_not_there_is_a_sentence_for_each_place_of_the_cluster() -> None:
    assert why_not(DECISION, "cloud") == [
        "cloud/h100/on-demand: is chosen",
        "cloud/h100/spot: is out: interruption: may not be interrupted (spot_ok is false)",
        "cloud/l40s/on-demand: is out: price: no price to compare: NaN declared",
    ]
    assert why_not(DECISION, "onprem") == [
        "onprem/a100/owned: would have to wait: waiting-for-nodes: waiting for nodes in pool a100"
    ]


def test_a_place_that_fits_is_told_by_which_terms_it_loses() -> None:
    both = snapshot(cluster_state(onprem_cluster()), cluster_state(cloud_cluster()))
    first, *_ = why_not(place(job_spec(), both, placement_policy()), "cloud")
    assert first == (
        "cloud/h100/on-demand: fits, and its total 0.150 is below the 0.953 of onprem/a100/owned: "
        "cost 0.000 against 0.688, qos 0.000 against 1.000"
    )


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ("8.0", "for the same price, and comes after it by name"),
        ("9.0", ", and costs 9.0 a GPU-hour against 8.0"),
    ],
)
def test_equal_totals_are_told_apart_by_price_and_then_by_name(price: str, told: str) -> None:
    only_qos = placement_policy(weights={"qos": Decimal(1)})
    pools = tuple(
        cloud_pool(name=name, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(p)})
        for name, p in (("a", "8.0"), ("b", price))
    )
    decision = place(job_spec(), snapshot(cluster_state(cloud_cluster(pools=pools))), only_qos)
    assert why_not(decision, "cloud") == [
        "cloud/a/on-demand: is chosen",
        f"cloud/b/on-demand: fits as well as cloud/a/on-demand{told if told[0] == ',' else ' ' + told}",
    ]


def test_an_unknown_transfer_is_no_cheap_one() -> None:
    seen = snapshot(
        cluster_state(onprem_cluster()),
        cluster_state(cloud_cluster()),
        datasets={"digits": DatasetFacts(home="onprem", size_bytes=None)},
    )
    only_qos = placement_policy(weights={"affinity": Decimal(1)})
    first, *_ = why_not(place(job_spec(dataset="digits"), seen, only_qos), "cloud")
    assert "costs an unknown price with its transfer (8.0 without) a GPU-hour against" in first


def test_clusters_without_places_are_told_of_too() -> None:
    seen = snapshot(cluster_state(cloud_cluster(pools=())), unreachable={"far": "no answer"})
    decision = place(job_spec(), seen, placement_policy())
    assert clusters(seen) == ["cloud", "far"]
    assert why_not(decision, "cloud") == ["cloud: declares no pool"]
    assert why_not(decision, "far") == ["far: cannot be seen: no answer"]


def test_what_a_table_was_worked_out_from_says_unknown_and_nowhere_as_such() -> None:
    as_of = NOW - timedelta(days=30)
    pools = (cloud_pool(prices_as_of=as_of), cloud_pool(name="new", prices_as_of=as_of), cloud_pool(name="l40s"))
    known = snapshot(
        cluster_state(cloud_cluster(pools=pools)),
        cluster_state(onprem_cluster()),
        datasets={"digits": DatasetFacts(home="onprem", size_bytes=3 << 30)},
        datasets_present=frozenset({("digits", "onprem"), ("other", "cloud")}),
        link_rates={"cloud": 5.0 * 2**20},
    )
    assert inputs(job_spec(dataset="digits"), known, placement_policy(price_max_age=timedelta(days=90))) == {
        "weights": "qos 0.7, cost 0.15, affinity 0.15",
        "prices": "30 days old: cloud/h100, cloud/new; of unknown age: cloud/l40s; believed up to 90 days",
        "data": "digits, 3.0 GiB, verified to be whole at onprem",
        "measured lines": "cloud 5.0 MiB/s",
    }
    owned = snapshot(cluster_state(onprem_cluster()))
    unknown = inputs(job_spec(dataset="digits"), owned, placement_policy(weights={"cost": Decimal(2)}))
    assert unknown["weights"] == "qos 0, cost 2, affinity 0"
    assert unknown["prices"] == "none of bought GPUs"
    assert unknown["data"] == "digits, its size is not known, verified to be whole at no site"
    assert unknown["measured lines"] == "none, so as they are declared"
    assert inputs(job_spec(), snapshot(), placement_policy())["data"] == "none"
