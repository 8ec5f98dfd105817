"""Until when nobody need ask the plan again while nothing happens."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from spillway.model import OffPeak, ScalingSnapshot
from spillway.scaling.presets import DEFAULT, S0, S2
from spillway.scaling.rules import QueueRule, ScalingRules
from spillway.scaling.steady import steady_until
from spillway.testing.builders import NOW
from spillway.testing.elastic import (
    MINUTE,
    POOL,
    booting_node,
    busy_node,
    idle_node,
    measured,
    pending_job,
    pool_use,
    scaling_snapshot,
)

EVENT = ScalingRules(preset="event", reactive=QueueRule(after=5 * MINUTE), idle_release=10 * MINUTE)
COOLING = replace(EVENT, cool_down_out=3 * MINUTE)
NIGHT = OffPeak(begins=timedelta(hours=2), ends=timedelta(hours=6), time_zone="UTC")
IDLE = pool_use(busy_node("b"), idle_node("i", 4 * MINUTE))
BUSY = pool_use(busy_node("b"))
JOB = pending_job(since=NOW - MINUTE)


def full_for(minutes: int) -> ScalingSnapshot:
    """The cloud has been full for so long."""
    return scaling_snapshot(BUSY, cloud=measured(lambda age: 95 if age <= minutes * MINUTE else 70))


@pytest.mark.parametrize(
    ("seen", "rules", "expected"),
    [
        (scaling_snapshot(BUSY), EVENT, None),
        (scaling_snapshot(IDLE), EVENT, NOW + 6 * MINUTE),
        (scaling_snapshot(pool_use(booting_node("n", 3 * MINUTE))), EVENT, NOW + 12 * MINUTE),
        (scaling_snapshot(BUSY, queue=(JOB,)), EVENT, NOW + 4 * MINUTE),
        (scaling_snapshot(BUSY, queue=(replace(JOB, hold_until=NOW + MINUTE),)), EVENT, NOW + MINUTE),
        (scaling_snapshot(BUSY, queue=(JOB,)), DEFAULT, NOW),
        (scaling_snapshot(BUSY, queue=(replace(JOB, places=frozenset({("onprem", "a100")})),)), DEFAULT, None),
        (scaling_snapshot(BUSY, last_out={POOL: NOW - MINUTE}), COOLING, NOW + 2 * MINUTE),
        (scaling_snapshot(BUSY), replace(EVENT, release_hours=NIGHT), NOW),
        (scaling_snapshot(BUSY, queue=(JOB,)), S2, NOW),
        (scaling_snapshot(IDLE), S2, NOW + 56 * MINUTE),
        (scaling_snapshot(pool_use(idle_node("i", 90 * MINUTE))), S2, NOW),
        (full_for(1), S0, NOW + 2 * MINUTE),
        (full_for(4), S0, None),
    ],
    ids=[
        "nothing waits or idles",
        "a node that idles",
        "a node that boots",
        "a job that waits for its nodes to be ordered",
        "a job that waits by choice",
        "jobs for which on-premises may have room",
        "a job that waits for on-premises alone",
        "a pool that cools down",
        "hours of release",
        "steps go by how busy on-premises is while jobs wait",
        "but not while none waits, until a node has idled for an hour",
        "and from then on again",
        "the cloud is about to have been full for 3 minutes",
        "it has been, and nothing came of it",
    ],
)  # fmt: skip
def test_a_plan_is_steady_until_the_next_moment_that_its_rules_look_at(
    seen: ScalingSnapshot, rules: ScalingRules, expected: datetime | None
) -> None:
    assert steady_until(seen, rules) == expected
