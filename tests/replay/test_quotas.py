"""Where the quotas of a policy count a department has no more than its own, and buys no nodes beyond it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from spillway.model import Billing, CloudAccess, JobRecord, PlacementPolicy, QuotaShare
from spillway.replay.comparing import WHOLE, policy_of
from spillway.replay.engine import Policy, replay
from spillway.replay.metrics import figures
from spillway.replay.world import Conditions
from spillway.scaling.rules import QueueRule, ScalingRules
from spillway.testing.builders import NOW, cloud_cluster, cloud_pool, node_pool, onprem_cluster

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
RULES = ScalingRules(preset="event", reactive=QueueRule(), idle_release=10 * MINUTE)
POLICY_FILE = Path(__file__).resolve().parents[2] / "include" / "config" / "policy.yaml"
HALVES = {name: QuotaShare(onprem=Decimal("0.5"), cloud=Decimal(0)) for name in ("vision", "speech")}
"""Of two nodes on-premises each has one, and nobody has anything in a cloud."""


def job(name: str, at: timedelta, department: str) -> JobRecord:
    asked = NOW + at
    return JobRecord(
        job=name, submitted_at=asked, gpus=8, started_at=asked, ended_at=asked + HOUR, department=department
    )


JOBS = [
    job("a", 0 * MINUTE, "vision"), job("b", 1 * MINUTE, "vision"), job("c", 2 * MINUTE, "speech"),
    job("d", 3 * MINUTE, "speech"),
]  # fmt: skip


def starts(jobs: list[JobRecord], policy: PlacementPolicy) -> tuple[list[float], float]:
    """Minutes after the first job at which each starts, and the cloud GPU-hours that are paid for."""
    bought = cloud_pool(max_nodes=10, prices_per_gpu_hour={Billing.ON_DEMAND: Decimal(8)})
    clusters = (onprem_cluster(pools=(node_pool(max_nodes=2),)), cloud_cluster(pools=(bought,)))
    conditions = Conditions(boot=(6 * MINUTE, 6 * MINUTE))
    result = replay(
        "made up", jobs, clusters, Policy(name="event", placement=policy, scaling=RULES), conditions=conditions
    )
    return (result.started / 60).tolist(), figures(result).cloud_gpu_hours_paid


def policy(**fields: object) -> PlacementPolicy:
    weights = {"qos": Decimal("0.7"), "cost": Decimal("0.15"), "affinity": Decimal("0.15")}
    return replace(PlacementPolicy(weights=weights, quotas=HALVES), **fields)  # type: ignore[arg-type]


def test_a_department_waits_for_its_own_gpus_while_others_are_free() -> None:
    # The cloud's GPUs are the rest that all share, so they are closed to both by their rights.
    closed = {name: CloudAccess(clusters=frozenset(), billing=frozenset()) for name in HALVES}
    assert starts(JOBS, policy(cloud_access=closed)) == ([0.0, 60.0, 2.0, 62.0], 0.0)


def test_what_no_department_owns_is_for_whoever_comes_first() -> None:
    found, paid = starts(JOBS, policy())
    assert found == [0.0, 7.5, 2.0, 9.0]
    assert paid > 16


def test_without_quotas_the_first_jobs_have_on_premises() -> None:
    assert starts(JOBS, policy(quotas=WHOLE))[0][:2] == [0.0, 1.0]


@pytest.mark.parametrize("asked", [False, True])
def test_quotas_and_rights_of_a_policy_file_are_left_out_unless_asked_for(asked: bool) -> None:
    placement = policy_of(str(POLICY_FILE), quotas=asked).placement
    assert (placement.quotas == WHOLE) is not asked
    assert (placement.cloud_access is None) is not asked
    assert placement.cloud_access is None or all(not access.dags for access in placement.cloud_access.values())
