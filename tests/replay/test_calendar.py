"""The rules by the calendar hold in a replay at the moments of the trace."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from spillway.model import Billing, JobRecord, OffPeak, PlacementPolicy, QuotaShare
from spillway.replay.engine import Policy, replay
from spillway.replay.world import Conditions
from spillway.scaling.rules import QueueRule, ScalingRules, WindowRule
from spillway.testing.builders import cloud_cluster, cloud_pool, node_pool, onprem_cluster
from spillway.windows import Iteration

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FIRST = datetime(2026, 1, 20, tzinfo=UTC)
BERLIN = "Europe/Berlin"
MONTHLY = WindowRule(iteration=Iteration(time_zone=BERLIN), nodes=3, lead=24 * HOUR)
EVENT = ScalingRules(preset="event", reactive=QueueRule(), idle_release=10 * MINUTE)


def orders(rules: ScalingRules, *lasting: timedelta) -> list[tuple[datetime, int]]:
    """Changes of the nodes in the cloud, where jobs of a node ask at once, and one has room on-premises."""
    bought = cloud_pool(max_nodes=20, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)})
    clusters = (onprem_cluster(pools=(node_pool(max_nodes=1),)), cloud_cluster(pools=(bought,)))
    placement = PlacementPolicy(
        weights={"qos": Decimal(1)}, quotas={"all": QuotaShare(onprem=Decimal(1), cloud=Decimal(1))}
    )
    jobs = [
        JobRecord(job=f"{at}", submitted_at=FIRST, gpus=8, started_at=FIRST, ended_at=FIRST + lasts)
        for at, lasts in enumerate(lasting)
    ]
    policy = Policy(name="event", placement=placement, scaling=rules)
    result = replay("made up", jobs, clusters, policy, conditions=Conditions(boot=(6 * MINUTE, 6 * MINUTE)))
    columns = result.orders.at.tolist(), result.orders.nodes.tolist()
    return [(FIRST + timedelta(seconds=at), nodes) for at, nodes in zip(*columns, strict=True)]


def test_nodes_of_a_window_come_a_day_before_beside_those_there_are_and_leave_after_it() -> None:
    # The last seven days of January in Berlin are from the 24th, 23:00 UTC, to the 31st, 23:00 UTC.
    begins, ends = datetime(2026, 1, 24, 23, tzinfo=UTC), datetime(2026, 1, 31, 23, tzinfo=UTC)
    tick = timedelta(seconds=30)
    assert orders(replace(EVENT, window=MONTHLY), 14 * DAY, 14 * DAY) == [
        (FIRST + tick, 1), (begins - DAY + tick, 3), (ends, -3)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("release_hours", "leaves"),
    [
        (None, FIRST + 2 * HOUR + 7 * MINUTE + 10 * HOUR),
        (OffPeak(begins=4 * HOUR, ends=6 * HOUR, time_zone=BERLIN), datetime(2026, 1, 20, 3, tzinfo=UTC)),
    ],
    ids=["as it has idled for long", "in the hours of release"],
)
def test_an_idle_node_leaves_in_the_hours_of_release(release_hours: OffPeak | None, leaves: datetime) -> None:
    rules = replace(EVENT, idle_release=10 * HOUR, release_hours=release_hours)
    last = orders(rules, 20 * HOUR, 2 * HOUR)[-1]
    assert last[1] == -1
    assert abs(last[0] - leaves) <= MINUTE
