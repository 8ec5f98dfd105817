"""Five tasks on 8 local GPUs at 2.5 and 16 cloud GPUs at 8.0 an hour, local first: who runs where at what cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.model import Billing, PlacementDecision, Reservation
from spillway.placement.policy import place
from spillway.pricing import cost
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    reservation,
    snapshot,
)


@dataclass(frozen=True)
class Task:
    name: str
    gpus: int
    hours: int
    low_latency: bool


TASKS = (
    Task("a", 2, 10, True),
    Task("b", 4, 6, False),
    Task("c", 8, 2, False),
    Task("d", 4, 12, True),
    Task("e", 6, 4, False),
)
PRICES = {"onprem": Decimal("2.5"), "cloud": Decimal("8.0")}
SITES = snapshot(
    cluster_state(
        onprem_cluster(pools=(node_pool(max_nodes=1, prices_per_gpu_hour={Billing.OWNED: PRICES["onprem"]}),))
    ),
    cluster_state(
        cloud_cluster(pools=(cloud_pool(max_nodes=2, prices_per_gpu_hour={Billing.ON_DEMAND: PRICES["cloud"]}),))
    ),
)


def decisions(tasks: Iterable[Task]) -> dict[str, PlacementDecision]:
    """Each task placed in turn, and its GPUs held from then on."""
    held: list[Reservation] = []
    made = {}
    for task in tasks:
        job = job_spec(name=task.name, gpus_per_node=task.gpus, latency_sensitive=task.low_latency)
        decision = place(job, replace(SITES, reservations=tuple(held)), placement_policy())
        made[task.name] = decision
        if (chosen := decision.chosen) is not None:
            held.append(
                reservation(attempt=f"{task.name}-1", cluster=chosen.cluster, pool=chosen.pool, gpus_per_node=task.gpus)
            )
    return made


def places(made: dict[str, PlacementDecision]) -> dict[str, str | None]:
    return {name: decision.chosen.cluster if decision.chosen else None for name, decision in made.items()}


WITHOUT_LATENCY = tuple(replace(task, low_latency=False) for task in TASKS)


def test_without_the_latency_rule_two_run_locally_two_in_the_cloud_and_one_waits() -> None:
    made = decisions(WITHOUT_LATENCY)
    assert places(made) == {"a": "onprem", "b": "onprem", "c": "cloud", "d": "cloud", "e": None}
    assert made["e"].possible
    assert [[rejection.rule for rejection in verdict.rejections] for verdict in made["e"].verdicts] == [
        ["quota", "full"]
    ] * 2


def test_the_latency_rule_lets_the_fourth_wait_for_local_and_the_fifth_run_in_the_cloud() -> None:
    made = decisions(TASKS)
    assert places(made) == {"a": "onprem", "b": "onprem", "c": "cloud", "d": None, "e": "cloud"}
    assert made["d"].possible
    assert {
        verdict.candidate.cluster: [rejection.rule for rejection in verdict.rejections]
        for verdict in made["d"].verdicts
    } == {"onprem": ["quota", "full"], "cloud": ["latency"]}


@pytest.mark.parametrize(
    ("count_gpus", "total"), [(False, Decimal("152.0")), (True, Decimal(622))], ids=["per hour", "per GPU-hour"]
)
def test_what_the_four_that_run_cost(count_gpus: bool, total: Decimal) -> None:
    tasks = {task.name: task for task in TASKS}
    ran = {name: site for name, site in places(decisions(WITHOUT_LATENCY)).items() if site is not None}
    assert total == sum(
        cost(tasks[name].gpus if count_gpus else 1, NOW, NOW + timedelta(hours=tasks[name].hours), PRICES[site])
        for name, site in ran.items()
    )
