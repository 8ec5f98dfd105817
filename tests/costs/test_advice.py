"""Advice follows from what was booked, and is silent where nothing is known or saved."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spillway.attribution import MonthlyCost
from spillway.costs.advice import Advice, advise, break_even_hours
from spillway.costs.lines import parts_of
from spillway.model import Attempt, AttemptState, Billing, ClusterState, CostEntry, Outcome
from spillway.months import named_month
from spillway.pricing import cost, gpu_hours
from spillway.testing.builders import (
    attempt,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    nodes_of,
    onprem_cluster,
    pod,
)
from spillway.testing.ledger_values import a_cost

JUNE = named_month("2026-06", "UTC")  # 720 hours
assert JUNE is not None
HALF = JUNE.starts_at + timedelta(days=15)
PRICES = {Billing.ON_DEMAND: Decimal(8), Billing.RESERVED: Decimal(6)}
CLUSTERS = (onprem_cluster(), cloud_cluster(pools=(cloud_pool(prices_per_gpu_hour=PRICES),)))


def bought(number: int, hours: int, *, gpus: int = 1, at: datetime = JUNE.starts_at, **fields: Any) -> CostEntry:
    """On-demand GPUs of the cloud for 8 an hour."""
    end = at + timedelta(hours=hours)
    entry = a_cost(
        f"r-{number}",
        cluster="cloud",
        pool="h100",
        billing=Billing.ON_DEMAND,
        gpus=gpus,
        price_per_gpu_hour=Decimal(8),
        gpu_hours=gpu_hours(gpus, at, end),
        amount=cost(gpus, at, end, Decimal(8)),
        started_at=at,
        ended_at=end,
    )
    return replace(entry, **fields)


def advice(
    *entries: CostEntry, attempts: tuple[Attempt, ...] = (), seen: tuple[ClusterState, ...] = ()
) -> list[Advice]:
    """What half a month tells."""
    assert JUNE is not None
    parts: tuple[MonthlyCost, ...] = parts_of(entries, JUNE, "UTC")
    known = {one.label: one for one in attempts}
    return list(advise(parts, CLUSTERS, known, seen, month=JUNE, now=HALF))


def test_cloud_gpus_that_mostly_wait_are_to_work_at_home() -> None:
    (found,) = advice(bought(1, 100, utilisation=Decimal("0.25")))
    assert found == Advice(
        about="job llm-7b at cloud",
        evidence="its GPUs were busy for 25% of 100.0 measured GPU-hours",
        action="run it on-premises, where a GPU-hour costs 2.50 instead of 8.00",
        saves=Decimal(1100),  # 100 hours at 5.5 in half a month
        carried_out_by="migrate_job",
    )


@pytest.mark.parametrize(
    "entry",
    [
        bought(1, 100, utilisation=Decimal("0.3")),
        bought(1, 23, utilisation=Decimal("0.1")),
        bought(1, 100),
        bought(1, 100, utilisation=Decimal("0.1"), billing=Billing.OWNED, cluster="onprem", pool="a100"),
    ],
    ids=["busy enough", "too short to tell", "not measured", "at home"],
)
def test_of_other_gpus_nothing_is_said(entry: CostEntry) -> None:
    assert advice(entry) == []


def test_gpus_are_to_be_reserved_that_are_used_for_longer_than_it_takes_to_pay() -> None:
    # Reserved ones cost 360 x 6 for half a month: as much as 270 hours on demand. Two GPUs are used for longer.
    (found,) = advice(bought(1, 300, gpus=2), bought(2, 200, at=JUNE.starts_at))
    assert found.evidence == "bought on demand for more than 270 of 360 hours: 2 GPUs, the last of them for 300"
    assert found.action == (
        "reserve 2 GPUs at 6.00 instead of 8.00 an hour and declare the contract (`reserved` of the pool)"
    )
    assert found.saves == 2 * 2 * (Decimal(300 * 8) - Decimal(360 * 6))
    assert advice(bought(1, 270, gpus=4)) == []


def test_jobs_one_after_another_share_a_reserved_gpu() -> None:
    second = bought(2, 150, at=JUNE.starts_at + timedelta(hours=150))
    (found,) = advice(bought(1, 150), second)
    assert found.evidence.startswith("bought on demand for more than 270 of 360 hours: 1 GPU,")


def test_break_even_is_the_part_of_the_hours_that_the_prices_have_to_each_other() -> None:
    assert break_even_hours(Decimal(8), Decimal("5.6"), Decimal(730)) == Decimal(511)


def test_what_was_paid_without_a_step_is_to_be_looked_at() -> None:
    ended = {"run": "r", "state": AttemptState.SETTLED, "outcome": Outcome.FAILED}
    empty, good = attempt(number=1, **ended), attempt(number=2, last_step=7, **ended)
    lost = replace(attempt(number=3, **ended), outcome=Outcome.PREEMPTED)
    (found,) = advice(bought(1, 3), bought(2, 5), bought(3, 7), attempts=(empty, good, lost))
    assert found.evidence == "1 of its attempts took 3.0 GPU-hours and trained no step"
    assert (found.saves, found.carried_out_by) == (Decimal(48), "sweep_orphans")


def test_cloud_nodes_without_a_pod_are_to_go_and_those_at_home_may_stay() -> None:
    home, cloud = CLUSTERS
    (pool,) = cloud.pools
    nodes = nodes_of(pool, 3)
    seen = (cluster_state(home), cluster_state(cloud, nodes=nodes, pods=[pod(node=nodes[0].name)]))
    (found,) = advice(seen=seen)
    assert found.evidence == "without a pod just now: 2 nodes with 16 GPUs: h100-1, h100-2"
    assert found.saves == Decimal(16 * 6 * 720)
    assert found.carried_out_by == "the pool's autoscaler, or a person"


def test_the_largest_saving_comes_first() -> None:
    found = advice(bought(1, 300, utilisation=Decimal("0.1")))
    assert [one.saves for one in found] == sorted((one.saves for one in found), reverse=True)
    assert len(found) == 2


def test_whoever_is_named_to_carry_an_advice_out_is_a_dag_that_there_is() -> None:
    failed = attempt(number=2, run="r", state=AttemptState.SETTLED, outcome=Outcome.FAILED)
    found = advice(bought(1, 300, utilisation=Decimal("0.1")), bought(2, 3), attempts=(failed,))
    named = {one.carried_out_by for one in found}
    assert named == {"migrate_job", "train", "sweep_orphans"}
    assert named <= {file.stem for file in (Path(__file__).parents[2] / "dags").glob("*.py")}
