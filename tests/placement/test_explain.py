"""The table that a person reads under a decision."""

from __future__ import annotations

from decimal import Decimal

from spillway.model import Billing, Tier
from spillway.placement.explain import headline, rows, table
from spillway.placement.policy import place
from spillway.testing.builders import (
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
