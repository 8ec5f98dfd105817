"""Jobs that wait for on-premises before they buy."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from spillway.model import Billing, Destination, Rejection, WaitRules
from spillway.placement.context import index
from spillway.placement.policy import choose, place
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cluster_state,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    snapshot,
)

HOUR = timedelta(hours=1)
RULES = WaitRules(from_gpus=8, from_gpu_hours=Decimal(40), share=Decimal(1))
DEAR = job_spec(gpus_per_node=8, expected_duration=5 * HOUR)
HOME = cluster_state(onprem_cluster(pools=(node_pool(max_nodes=1),)), nodes=())
CLOUD = cluster_state(cloud_cluster())


def decided(job: Any = DEAR, *, waiting: WaitRules | None = RULES, **seen: Any) -> tuple[str | None, list[Rejection]]:
    """Where the job goes, and what speaks against the place on demand."""
    whole = snapshot(*seen.pop("clusters", (HOME, CLOUD)), **{"waits_since": NOW} | seen)
    policy = placement_policy(waiting=waiting)
    decision = place(job, whole, policy)
    assert choose(job, index(whole, policy)).chosen == decision.chosen
    [verdict] = [v for v in decision.verdicts if v.candidate.billing is Billing.ON_DEMAND]
    return decision.chosen and decision.chosen.cluster, list(verdict.rejections)


def test_a_dear_job_waits_and_says_until_when() -> None:
    chosen, against = decided()
    assert chosen is None
    reason = f"waits for on-premises until {(NOW + 5 * HOUR).isoformat(timespec='seconds')} before it buys"
    assert against == [Rejection(rule="hold", reason=reason, waits=True)]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"waits_since": NOW - 5 * HOUR}, id="it has waited long enough"),
        pytest.param({"waits_since": None}, id="it has had a place already"),
        pytest.param({"waiting": None}, id="nobody waits"),
        pytest.param({"job": job_spec(gpus_per_node=8, expected_duration=4 * HOUR)}, id="a cheap one"),
        pytest.param({"destination": Destination(cluster="cloud")}, id="it is ordered there"),
        pytest.param({"clusters": (CLOUD,)}, id="there is no on-premises"),
        pytest.param({"job": job_spec(gpus_per_node=8, nodes=2, expected_duration=5 * HOUR)}, id="too wide for it"),
    ],
)
def test_a_job_buys_at_once_where_it_has_nothing_to_wait_for(change: dict[str, Any]) -> None:
    assert decided(**change) == ("cloud", [])
