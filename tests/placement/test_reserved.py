"""Reserved GPUs: the contract's first and no more than it has; without one only where they break even."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from spillway.model import Billing, Candidate, JobSpec, OffPeak, Priority, ReservedContract, Snapshot
from spillway.placement.policy import place
from spillway.pricing import hourly_price, price_is_stale, price_of_run
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    placement_policy,
    reservation,
    snapshot,
)

PRICES = {Billing.ON_DEMAND: Decimal(8), Billing.RESERVED: Decimal(6), Billing.SPOT: Decimal(2)}
HOUR = timedelta(hours=1)


def at(billing: Billing) -> Candidate:
    return Candidate(cluster="cloud", pool="h100", billing=billing)


def cloud(contract: ReservedContract | None, *, used: int = 0, **pool: Any) -> Snapshot:
    state = cluster_state(cloud_cluster(pools=(cloud_pool(prices_per_gpu_hour=PRICES, reserved=contract, **pool),)))
    held = [reservation(cluster="cloud", pool="h100", billing=Billing.RESERVED, gpus_per_node=used)] if used else []
    return snapshot(state, reservations=tuple(held))


def said(job: JobSpec, seen: Snapshot) -> list[tuple[str, str, bool]]:
    verdicts = place(job, seen, placement_policy()).verdicts
    [reasons] = [v.rejections for v in verdicts if v.candidate == at(Billing.RESERVED)]
    return [(r.rule, r.reason, r.waits) for r in reasons]


REQUIRED = job_spec(gpus_per_node=4, priority=Priority.PRODUCTION_CORE)


def test_what_is_under_contract_is_used_first_and_then_what_is_bought_on_demand() -> None:
    contract = ReservedContract(gpus=8)
    chosen = [place(REQUIRED, cloud(contract, used=used), placement_policy()).chosen for used in (0, 4, 5)]
    assert chosen == [at(Billing.RESERVED), at(Billing.RESERVED), at(Billing.ON_DEMAND)]
    assert said(REQUIRED, cloud(contract, used=5)) == [
        ("reserved", "needs 4 GPUs, 3 of the 8 under contract left", True)
    ]
    assert said(REQUIRED, cloud(ReservedContract(gpus=2))) == [
        ("reserved", "needs 4 GPUs, the contract is of 2", False)
    ]


@pytest.mark.parametrize(
    ("lasting", "told"),
    [
        (548 * HOUR, None),
        (547 * HOUR, "trains for 22 days, 19:00:00"),
        (None, "does not say how long it trains"),
    ],
    ids=["long enough", "too short", "unknown"],
)
def test_without_a_contract_they_are_taken_by_who_trains_to_the_break_even_point(
    lasting: timedelta | None, told: str | None
) -> None:
    """At three quarters of the on-demand price that is three quarters of a month's 730 hours."""
    pays = "without a contract (`reserved` of the pool) they pay from 548 of the 730 hours of a month on"
    job = job_spec(expected_duration=lasting)
    assert said(job, cloud(None)) == ([] if told is None else [("reserved", f"{told}; {pays}", False)])


def test_only_what_is_declared_as_paid_costs_nothing_more_and_is_taken_even_before_spot() -> None:
    job = job_spec(spot_ok=True)
    unpaid, paid = cloud(ReservedContract(gpus=8)), cloud(ReservedContract(gpus=8, paid=True))
    assert place(job, unpaid, placement_policy()).chosen == at(Billing.SPOT)
    decision = place(job, paid, placement_policy())
    assert (decision.chosen, decision.verdicts[0].price_per_gpu_hour) == (at(Billing.RESERVED), 0)
    [pool] = paid.declared[0].pools
    assert [hourly_price(pool, billing) for billing in (Billing.RESERVED, Billing.ON_DEMAND)] == [0, 8]
    night = OffPeak(begins=0 * HOUR, ends=23 * HOUR, time_zone="UTC", prices_per_hour={Billing.RESERVED: Decimal(5)})
    assert price_of_run(replace(pool, off_peak=night), Billing.RESERVED, NOW, HOUR) == 0
    assert not price_is_stale(pool, Billing.RESERVED, HOUR, NOW)
