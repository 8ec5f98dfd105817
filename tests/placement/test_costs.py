"""What a GPU-hour costs with the transfer of the job's data in it, and what that decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.model import Billing, DatasetFacts, DatasetUse, Link, PlacementVerdict, Snapshot, Tier, TransferEstimate
from spillway.placement.costs import full_price
from spillway.placement.explain import inputs, name, rows, table
from spillway.placement.policy import place
from spillway.testing.builders import (
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    onprem_cluster,
    placement_policy,
    pod,
    snapshot,
)

HOUR = timedelta(hours=1)
TERABYTE = 10**12
BY_COST = placement_policy(weights={"qos": Decimal(0), "cost": Decimal(1), "affinity": Decimal(0)})


def moved(duration: timedelta | None, egress: str | None) -> TransferEstimate:
    return TransferEstimate(size_bytes=1, duration=duration, egress=None if egress is None else Decimal(egress))


CASES: dict[str, tuple[dict[str, Any], TransferEstimate | None, str | None]] = {
    "no data": ({}, None, "8"),
    "data that is there": ({}, moved(timedelta(), "0"), "8"),
    "an hour to bring it, ten to train": ({"expected_duration": 10 * HOUR}, moved(HOUR, "0"), "8.8"),
    "egress over ten hours of four GPUs": (
        {"expected_duration": 10 * HOUR, "gpus_per_node": 2, "nodes": 2},
        moved(timedelta(), "20"),
        "8.5",
    ),
    "both": ({"expected_duration": 2 * HOUR}, moved(HOUR, "4"), "14"),
    "nobody said how long it trains": ({}, moved(HOUR, "0"), "16"),
    "an unknown transfer": ({}, moved(None, None), None),
}


@pytest.mark.parametrize(("job", "transfer", "price"), CASES.values(), ids=CASES)
def test_the_transfer_is_spread_over_the_hours_that_the_job_trains(
    job: dict[str, Any], transfer: TransferEstimate | None, price: str | None
) -> None:
    found = full_price(Decimal(8), job_spec(**job), transfer)
    assert found == (None if price is None else Decimal(price))


def two_clouds(
    *, size_bytes: int | None, rates: dict[str, float] | None = None, present: frozenset[str] = frozenset()
) -> Snapshot:
    """On-premises, where the data is, is full; ``near`` is dearer than ``far``."""

    def cloud(cluster: str, price: str) -> Any:
        pool = cloud_pool(prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(price)})
        return cluster_state(cloud_cluster(name=cluster, pools=(pool,), link=Link(bandwidth_gbps=10)))

    full = [pod(name=f"p{node}", gpus=8, node=f"a100-{node}") for node in range(4)]
    return snapshot(
        cluster_state(onprem_cluster(), pods=full),
        cloud("far", "8.0"),
        cloud("near", "8.4"),
        datasets={"digits": DatasetFacts(home="onprem", size_bytes=size_bytes)},
        datasets_present=frozenset({("digits", "onprem"), *(("digits", site) for site in present)}),
        link_rates=rates or {},
    )


def chosen(seen: Snapshot, **job: Any) -> str:
    decision = place(job_spec(dataset="digits", **job), seen, BY_COST)
    assert decision.chosen is not None
    return decision.chosen.cluster


def test_a_slow_line_makes_the_cheaper_cloud_the_dearer_one_until_the_job_is_long_enough() -> None:
    slow = {"far": TERABYTE / 3600, "near": 10**12}
    assert chosen(two_clouds(size_bytes=TERABYTE)) == "far"
    assert chosen(two_clouds(size_bytes=TERABYTE, rates=slow), expected_duration=10 * HOUR) == "near"
    assert chosen(two_clouds(size_bytes=TERABYTE, rates=slow), expected_duration=100 * HOUR) == "far"


def test_data_that_is_verified_to_be_there_need_not_be_brought() -> None:
    slow = {"far": TERABYTE / 3600, "near": 10**12}
    seen = two_clouds(size_bytes=TERABYTE, rates=slow, present=frozenset({"far"}))
    assert chosen(seen, expected_duration=10 * HOUR) == "far"


def test_of_a_part_the_copy_counts_that_a_site_without_core_data_has_and_its_own_size() -> None:
    slow = {"far": TERABYTE / 3600, "near": TERABYTE / 3600}
    seen = two_clouds(size_bytes=TERABYTE, rates=slow, present=frozenset({"far"}))
    facts = DatasetFacts(home="onprem", size_bytes=TERABYTE, public_bytes=TERABYTE // 10)
    part = job_spec(datasets=(DatasetUse(name="digits", part=Tier.PUBLIC),))
    decision = place(part, replace(seen, datasets={"digits": facts}), BY_COST)
    moved = {v.candidate.cluster: v.transfer and v.transfer.size_bytes for v in decision.verdicts}
    assert moved == {"onprem": 0, "far": 0, "near": TERABYTE // 10}


BOTH = (DatasetUse(name="digits"), DatasetUse(name="faces"))


def test_what_several_datasets_take_is_summed_and_unknown_where_that_of_one_is() -> None:
    rate = {"far": float(TERABYTE), "near": float(TERABYTE)}
    priced = two_clouds(size_bytes=TERABYTE, rates=rate, present=frozenset({"far"}))
    for size, expected in ((2 * TERABYTE, (2 * TERABYTE, 3 * TERABYTE)), (None, (None, None))):
        faces = DatasetFacts(home="onprem", size_bytes=size)
        seen = replace(priced, datasets={**priced.datasets, "faces": faces})
        decision = place(job_spec(datasets=BOTH), seen, BY_COST)
        moved = {v.candidate.cluster: v.transfer for v in decision.verdicts}
        found = tuple(one and (one.size_bytes, one.duration) for one in (moved["far"], moved["near"]))
        seconds = tuple(each and timedelta(seconds=each / TERABYTE) for each in expected)
        assert found == tuple(zip(expected, seconds, strict=True))
    assert (
        "digits, 931.3 GiB, verified to be whole at far, onprem; faces, its size is not known"
        in (inputs(job_spec(datasets=BOTH), seen, BY_COST)["data"])
    )


def verdicts(seen: Snapshot, **job: Any) -> dict[str, PlacementVerdict]:
    decision = place(job_spec(dataset="digits", **job), seen, BY_COST)
    return {verdict.candidate.cluster: verdict for verdict in decision.verdicts}


def test_data_of_unknown_size_never_counts_as_free() -> None:
    found = verdicts(two_clouds(size_bytes=None, present=frozenset({"near"})))
    assert (found["far"].scores["cost"], found["far"].full_price_per_gpu_hour) == (0.0, None)
    assert chosen(two_clouds(size_bytes=None, present=frozenset({"near"}))) == "near"


def test_a_decision_from_before_transfers_counted_is_decided_as_it_was() -> None:
    seen = snapshot(datasets_present=frozenset({("digits", "onprem")}))
    for verdict in place(job_spec(dataset="digits"), seen, BY_COST).verdicts:
        assert (verdict.transfer, verdict.full_price_per_gpu_hour) == (None, None)
        assert verdict.price_per_gpu_hour is not None
        assert verdict.scores["cost"] == float(1 - verdict.price_per_gpu_hour / 8)


def test_the_table_tells_what_would_be_brought_where() -> None:
    seen = two_clouds(size_bytes=TERABYTE, present=frozenset({"near"}))
    decision = place(job_spec(dataset="digits"), seen, BY_COST)
    transfers = {
        name(v.candidate): line for v, line in zip(decision.verdicts, table(decision).splitlines()[2:], strict=True)
    }
    assert "931.3 GiB in 800 s for 0.00" in transfers["far/h100/on-demand"]
    assert "  none  " in transfers["near/h100/on-demand"]
    [far] = [row for row in rows(decision) if row["candidate"] == "far/h100/on-demand"]
    assert far["transfer"] == {"size_bytes": TERABYTE, "duration": 800.0, "egress": "0"}
    assert Decimal(far["full_price_per_gpu_hour"]) == Decimal(8) * (1 + Decimal(800) / 3600)
    unknown = table(place(job_spec(dataset="digits"), two_clouds(size_bytes=None), BY_COST))
    assert "  unknown  " in unknown


@given(
    price=st.decimals(min_value=0, max_value=100, places=2),
    less=st.decimals(min_value=0, max_value=1, places=2),
    size=st.integers(0, 10**14),
    hours=st.integers(1, 1000),
)
def test_of_equal_places_a_lower_price_is_never_dearer(price: Decimal, less: Decimal, size: int, hours: int) -> None:
    job = job_spec(expected_duration=hours * HOUR)
    transfer = TransferEstimate(size_bytes=size, duration=timedelta(seconds=size / 1e9), egress=Decimal(size) / 10**11)
    cheaper, dearer = full_price(price * less, job, transfer), full_price(price, job, transfer)
    assert cheaper is not None
    assert dearer is not None
    assert cheaper <= dearer
