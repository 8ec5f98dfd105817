"""Every reason against a candidate but its room, and whether waiting can lift it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from spillway.model import Billing, Candidate, DatasetFacts, DatasetUse, QuotaShare, Rejection, Tier
from spillway.placement.policy import place
from spillway.testing.builders import (
    NOW,
    candidate,
    cloud_cluster,
    cluster_state,
    cooling,
    job_spec,
    onprem_cluster,
    placement_policy,
    reservation,
    snapshot,
)

ONPREM = candidate()
ON_DEMAND = candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
SPOT = candidate(cluster="cloud", pool="h100", billing=Billing.SPOT)
PART = DatasetUse(name="digits", part=Tier.PUBLIC)
ALONE = "it reads a public part alone, and the site, where core data is"
HALF_AND_HALF = placement_policy(
    quotas={
        "research": QuotaShare(onprem=Decimal("0.25"), cloud=Decimal("0.5")),
        "production": QuotaShare(onprem=Decimal("0.5"), cloud=Decimal("0.5")),
    }
)


def rejections(where: Candidate, *, job: Any = None, seen: Any = None, policy: Any = None) -> tuple[Rejection, ...]:
    decision = place(job or job_spec(), seen or snapshot(), policy or placement_policy())
    return next(verdict.rejections for verdict in decision.verdicts if verdict.candidate == where)


# job, snapshot, policy; the candidate and all that is said against it: rule, reason, whether it waits
CASES: dict[str, tuple[Any, Any, Any, Candidate, list[tuple[str, str, bool]]]] = {
    "nothing": (None, None, None, ONPREM, []),
    "gpu model": (
        job_spec(gpu_model="H100"),
        None,
        None,
        ONPREM,
        [("gpu-model", "needs H100, the pool has A100", False)],
    ),
    "gpu model that is there": (job_spec(gpu_model="A100"), None, None, ONPREM, []),
    "gpu memory": (
        job_spec(gpu_memory_gib=96),
        None,
        None,
        ONPREM,
        [("gpu-memory", "needs 96 GiB a GPU, the pool's have 80", False)],
    ),
    "gpu memory that is just there": (job_spec(gpu_memory_gib=80), None, None, ONPREM, []),
    "residency": (
        job_spec(tier=Tier.CORE),
        None,
        None,
        ON_DEMAND,
        [
            (
                "residency",
                "its data is of tier core, the site may store public; without a dataset, core is what no `tier:` means",
                False,
            )
        ],
    ),
    "several datasets of which one is core, though it could be read over the link": (
        job_spec(datasets=(DatasetUse(name="faces"), DatasetUse(name="synth")), tier=Tier.CORE, image_tier=Tier.PUBLIC),
        snapshot(
            datasets={"faces": DatasetFacts(home="onprem", remote_read=True), "synth": DatasetFacts(home="cloud")}
        ),
        None,
        ON_DEMAND,
        [
            (
                "residency",
                "its data is of tier core, the site may store public; it reads faces of onprem, synth of cloud, and "
                "over the link a job reads one dataset alone",
                False,
            )
        ],
    ),
    "a public part beside core data": (
        job_spec(datasets=(PART,)),
        None,
        None,
        ONPREM,
        [("residency", f"{ALONE}, names no public_pod_connection for it", False)],
    ),
    "a public part where no core data is": (job_spec(datasets=(PART,)), None, None, ON_DEMAND, []),
    "residency of core data at home": (job_spec(tier=Tier.CORE), None, None, ONPREM, []),
    "public data where core data may be": (
        job_spec(tier=Tier.PUBLIC),
        snapshot(cluster_state(onprem_cluster(residency=frozenset({Tier.CORE})))),
        None,
        ONPREM,
        [],
    ),
    "a site that may store nothing": (
        job_spec(tier=Tier.PUBLIC),
        snapshot(cluster_state(onprem_cluster(residency=frozenset()))),
        None,
        ONPREM,
        [("residency", "its data is of tier public, the site may store none", False)],
    ),
    "an image that a job of core data uses too": (
        job_spec(image="train:v1"),
        snapshot(core_images={"train:v1": "job 'core' uses it"}),
        None,
        ON_DEMAND,
        [
            (
                "residency",
                "its image train:v1 counts as core, the site may store public: job 'core' uses it",
                False,
            ),
        ],
    ),
    "an image of core data at home": (
        job_spec(image="train:v1"),
        snapshot(core_images={"train:v1": "job 'core' uses it"}),
        None,
        ONPREM,
        [],
    ),
    "another image than that of core data": (
        job_spec(image="train:v2"),
        snapshot(core_images={"train:v1": "job 'core' uses it"}),
        None,
        ON_DEMAND,
        [],
    ),
    "latency": (
        job_spec(latency_sensitive=True),
        None,
        None,
        ON_DEMAND,
        [("latency", "is latency-sensitive, and cloud is a cloud site not declared low_latency", False)],
    ),
    "latency at a site near by": (
        job_spec(latency_sensitive=True),
        snapshot(cluster_state(cloud_cluster(low_latency=True))),
        None,
        ON_DEMAND,
        [],
    ),
    "latency at a site on-premises that is far off": (
        job_spec(latency_sensitive=True),
        snapshot(cluster_state(onprem_cluster(low_latency=False))),
        None,
        ONPREM,
        [("latency", "is latency-sensitive, and onprem is declared as `low_latency: false`", False)],
    ),
    "latency on-premises": (job_spec(latency_sensitive=True), None, None, ONPREM, []),
    "spot": (None, None, None, SPOT, [("interruption", "may not be interrupted (spot_ok is false)", False)]),
    "spot for a job that may be interrupted": (job_spec(spot_ok=True), None, None, SPOT, []),
    "department without a quota": (
        job_spec(department="marketing"),
        None,
        HALF_AND_HALF,
        ONPREM,
        [("quota", "department 'marketing' has no quota; departments with one: production, research", False)],
    ),
    "quota that is never enough": (
        job_spec(gpus_per_node=8, nodes=3),
        None,
        HALF_AND_HALF,
        ONPREM,
        [("quota", "needs 24 GPUs, 'research' never has more than 16 at onprem (8 of its own, 8 shared)", False)],
    ),
    "quota that is used up": (
        job_spec(gpus_per_node=5),
        snapshot(reservations=(reservation(gpus_per_node=4, nodes=3),)),
        HALF_AND_HALF,
        ONPREM,
        [("quota", "needs 5 GPUs, 'research' has 4 of 16 GPUs at onprem left", True)],
    ),
    "quota that is just enough": (
        job_spec(gpus_per_node=4),
        snapshot(reservations=(reservation(gpus_per_node=4, nodes=3),)),
        HALF_AND_HALF,
        ONPREM,
        [],
    ),
    "quota of the other kind of site": (
        job_spec(gpus_per_node=5),
        snapshot(reservations=(reservation(gpus_per_node=4, nodes=3),)),
        HALF_AND_HALF,
        ON_DEMAND,
        [],
    ),
    "unreachable": (
        None,
        snapshot(
            cluster_state(cloud_cluster()),
            unreachable={"onprem": "connect timeout after 20 s"},
            unreachable_clusters=(onprem_cluster(),),
        ),
        None,
        ONPREM,
        [("unreachable", "the cluster cannot be seen: connect timeout after 20 s", True)],
    ),
    "misconfigured": (
        None,
        snapshot(
            cluster_state(cloud_cluster()),
            unreachable={"onprem": "Connection 'onprem_store' is not in Airflow"},
            misconfigured=frozenset({"onprem"}),
            unreachable_clusters=(onprem_cluster(),),
        ),
        None,
        ONPREM,
        [
            (
                "misconfigured",
                "cannot be asked until this is corrected: Connection 'onprem_store' is not in Airflow",
                True,
            )
        ],
    ),
    "cool-down": (
        None,
        snapshot(cool_downs=(cooling(), cooling(until=NOW + timedelta(minutes=1), reason="older"))),
        None,
        ONPREM,
        [("cool-down", "is avoided until 2026-01-05T12:05:00+00:00: lost its node", True)],
    ),
    "cool-down that is over": (None, snapshot(cool_downs=(cooling(until=NOW),)), None, ONPREM, []),
    "cool-down of another pool": (None, snapshot(cool_downs=(cooling(pool="v100"),)), None, ONPREM, []),
    "a price above the most that is paid": (
        job_spec(max_price_per_gpu_hour=Decimal("7.99")),
        None,
        None,
        ON_DEMAND,
        [("max-price", "costs 8.0 a GPU-hour, the job pays at most 7.99", False)],
    ),
    "a price that is just paid": (job_spec(max_price_per_gpu_hour=Decimal(8)), None, None, ON_DEMAND, []),
}


@pytest.mark.parametrize(("job", "seen", "policy", "where", "said"), CASES.values(), ids=CASES.keys())
def test_what_is_said_against_a_candidate(
    job: Any, seen: Any, policy: Any, where: Candidate, said: list[tuple[str, str, bool]]
) -> None:
    assert rejections(where, job=job, seen=seen, policy=policy) == tuple(
        Rejection(rule=rule, reason=reason, waits=waits) for rule, reason, waits in said
    )


def test_several_reasons_are_all_told() -> None:
    said = rejections(SPOT, job=job_spec(tier=Tier.CORE, latency_sensitive=True, gpu_model="A100"))
    assert [rejection.rule for rejection in said] == ["gpu-model", "residency", "latency", "interruption"]
