"""Decisions that are stored name the rules that took them, so whoever changes the rules has to raise their number."""

from __future__ import annotations

import hashlib
from decimal import Decimal

from spillway.model import Billing
from spillway.placement.explain import explanation
from spillway.placement.policy import place
from spillway.placement.rules import RULES
from spillway.testing.builders import (
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    onprem_cluster,
    placement_policy,
    snapshot,
)

PRICES = {Billing.ON_DEMAND: Decimal(8), Billing.SPOT: Decimal(3)}
CLOUD = cluster_state(cloud_cluster(pools=(cloud_pool(prices_per_gpu_hour=PRICES),)))
HOME = cluster_state(onprem_cluster())
JOBS = (
    job_spec(),
    job_spec(latency_sensitive=True),
    job_spec(spot_ok=True),
    job_spec(gpus_per_node=16),
    job_spec(gpus_per_node=0),
    job_spec(gpu_model="V100"),
)
TOLD = (2, "d54d7e20eb1f5def")
"""The number of the rules, and what they come to and say of the jobs above."""


def test_rules_that_come_to_something_else_or_say_it_in_other_words_have_another_number() -> None:
    policy = placement_policy()
    told = [
        explanation(job, seen, policy, place(job, seen, policy))
        for job in JOBS
        for seen in (snapshot(HOME, CLOUD), snapshot(CLOUD))
    ]
    found = (RULES, hashlib.sha256("\n".join(told).encode()).hexdigest()[:16])
    assert found == TOLD, "raise RULES, unless no release has had these, and note what they come to now"
