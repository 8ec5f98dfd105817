"""A price that is missing or cannot be believed is never free."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from spillway.model import Billing, Cluster, Rejection
from spillway.placement.policy import place
from spillway.testing.builders import (
    NOW,
    candidate,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    onprem_cluster,
    placement_policy,
    snapshot,
)


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        (Decimal("NaN"), "no price to compare: NaN declared"),
        (Decimal("Infinity"), "no price to compare: Infinity declared"),
        (Decimal(-1), "no price to compare: -1 declared"),
        (Decimal(0), "no price to compare: 0 declared"),
        (None, "no price to compare: none is declared"),
    ],
)
def test_a_price_that_cannot_be_believed_is_never_free(price: Decimal | None, reason: str) -> None:
    seen = with_prices(cloud_cluster(), {Billing.ON_DEMAND: price})
    decision = place(job_spec(), seen, placement_policy())
    [verdict] = decision.verdicts
    assert verdict.rejections == (Rejection(rule="price", reason=reason, waits=False),)
    assert (decision.chosen, decision.possible, verdict.scores, verdict.price_per_gpu_hour) == (None, False, {}, None)


def test_a_pool_without_prices_is_in_the_table_with_the_reason() -> None:
    [verdict] = place(job_spec(), with_prices(onprem_cluster(), {}), placement_policy()).verdicts
    assert verdict.candidate == candidate(pool="h100", billing=Billing.OWNED)
    assert verdict.rejections == (Rejection(rule="price", reason="no price to compare: none is declared", waits=False),)


def test_an_owned_gpu_that_costs_nothing_may_win() -> None:
    decision = place(job_spec(), with_prices(onprem_cluster(), {Billing.OWNED: Decimal(0)}), placement_policy())
    assert decision.chosen == candidate(pool="h100")


def with_prices(cluster: Cluster, prices: Any) -> Any:
    pool = cloud_pool(prices_per_gpu_hour=prices)
    return snapshot(cluster_state(onprem_cluster(name=cluster.name, kind=cluster.kind, pools=(pool,))))


@pytest.mark.parametrize(
    ("as_of", "reason"),
    [
        (NOW - timedelta(days=90), None),
        (NOW - timedelta(days=91), "8 is of 2025-10-06 (prices_as_of), and no older than 90 days, 0:00:00 is believed"),
        (None, "8 is nobody says of which day (prices_as_of), and no older than 90 days, 0:00:00 is believed"),
    ],
    ids=["just fresh", "stale", "of unknown age"],
)
def test_a_price_that_is_too_old_is_none(as_of: datetime | None, reason: str | None) -> None:
    pool = cloud_pool(prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)}, prices_as_of=as_of)
    seen = snapshot(cluster_state(cloud_cluster(pools=(pool,))))
    [verdict] = place(job_spec(), seen, placement_policy(price_max_age=timedelta(days=90))).verdicts
    assert [rejection.reason for rejection in verdict.rejections] == ([] if reason is None else [reason])
    assert (verdict.price_per_gpu_hour is None) == (reason is not None)
    assert not place(job_spec(), seen, placement_policy()).verdicts[0].rejections, "any age is believed by default"


def test_a_price_of_owned_gpus_does_not_age() -> None:
    decision = place(job_spec(), snapshot(), placement_policy(price_max_age=timedelta(days=1)))
    assert decision.chosen == candidate()
