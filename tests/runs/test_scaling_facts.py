"""What the scaler is told: who waits or is still to come, what budgets leave, what a window began with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.clouds.kubernetes import KubernetesCluster
from spillway.model import Budget, Ending, JobSpec, PoolSample, PoolTarget, Sample, ScalingSnapshot, Tier, UsePoint
from spillway.runs.scaling import look
from spillway.runs.scaling_facts import scalers, scaling_snapshot
from spillway.runs.services import Services
from spillway.scaling.presets import DEFAULT
from spillway.scaling.rules import WindowRule
from spillway.testing.carried_run import Carried
from spillway.testing.elastic import scaling_look
from spillway.testing.polling import eventually
from spillway.windows import Iteration

MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]
GPU = ("cloud", "gpu")


def seen(services: Services) -> ScalingSnapshot:
    return scaling_snapshot(services, scalers(services))


def test_what_is_promised_a_place_is_still_to_come_until_its_pod_has_a_node(
    services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=400, pace=0.2, gpus_per_node=4, tier=Tier.PUBLIC))
    run.place()
    (coming,) = seen(services).queue
    assert (coming.run, coming.gpus, coming.places) == (run.run, 4, frozenset({GPU}))
    run.start()
    eventually(lambda: [node.pods for use in seen(services).pools for node in use.nodes], any, seconds=120)
    assert seen(services).queue == ()


def test_what_is_promised_on_premises_has_its_room_there_and_wants_nothing_of_the_cloud(
    services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    placed = open_run(make_job(gpus_per_node=2, tier=Tier.CORE)).place()
    assert (placed.candidate.cluster, seen(services).queue) == ("onprem", ())


def test_of_a_gang_that_has_half_of_its_nodes_the_missing_pods_are_still_to_come_once(
    services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(steps=400, pace=0.2, gpus_per_node=4, nodes=2, tier=Tier.PUBLIC))
    run.place()
    assert [(coming.run, coming.nodes, coming.gpus) for coming in seen(services).queue] == [(run.run, 2, 8)]
    first, second = (node.name for use in seen(services).pools for node in use.nodes)
    client = services.site("cloud").client
    assert isinstance(client, KubernetesCluster)
    cordoned = {"spec": {"unschedulable": True}}
    client.api.json("PATCH", f"/api/v1/nodes/{second}", body=cordoned, content_type="application/merge-patch+json")
    run.start()

    def halves() -> list[tuple[str, int, int]]:
        return [(job.run, job.nodes, job.gpus) for job in seen(services).queue]

    eventually(halves, lambda found: found == [(run.run, 1, 4)], seconds=120)
    found = look(replace(services, actor="a test"))
    [target] = found.plan
    assert (target.nodes, target.remove) == (2, (second,)), f"{first} has a pod, one more node comes for the other pod"
    client.api.json(
        "PATCH",
        f"/api/v1/nodes/{second}",
        body={"spec": {"unschedulable": False}},
        content_type="application/merge-patch+json",
    )
    eventually(halves, lambda found: found == [], seconds=120)


@pytest.mark.parametrize(
    ("departments", "left"),
    [((), None), (("research",), None), (("production", "research"), Decimal(30))],
    ids=["no budgets", "a department without one", "all of them"],
)
def test_money_is_limited_where_every_department_is(
    services: Services, departments: tuple[str, ...], left: Decimal | None
) -> None:
    limits = {"production": Decimal(10), "research": Decimal(20)}
    budgets = tuple(Budget(department=name, limit=limits[name]) for name in departments)
    policy = replace(services.configuration.policy, budgets=budgets)
    limited = replace(services, configuration=replace(services.configuration, policy=policy))
    assert seen(limited).money_left == left


def test_a_window_counts_from_the_nodes_that_its_first_change_found(services: Services) -> None:
    window = WindowRule(iteration=Iteration(), lead=timedelta(days=35))
    configuration = replace(services.configuration, scaling=replace(DEFAULT, window=window))
    in_window = replace(services, configuration=configuration)
    assert (seen(services).base_nodes, seen(in_window).base_nodes) == ({}, {GPU: 2})
    for before, nodes in ((1, 2), (2, 3)):
        target = PoolTarget(cluster="cloud", pool="gpu", nodes=nodes)
        begun = services.ledger.begin_change(
            target, before=before, actor="a test", now=services.clock(), look=scaling_look()
        )
        services.ledger.change_is_asked(begun, services.clock())
    found = seen(in_window)
    assert found.base_nodes == {GPU: 1}
    assert set(found.last_out) == {GPU}
    assert (found.last_in, found.replaced) == ({}, {})


def test_runs_on_premises_that_say_how_long_they_train_are_room_to_come(
    services: Services, open_run: Carry, make_job: MakeJob
) -> None:
    hour = timedelta(hours=1)
    run = open_run(make_job(gpus_per_node=2, tier=Tier.CORE, expected_duration=hour))
    attempt = run.place()
    open_run(make_job(gpus_per_node=2, tier=Tier.CORE)).place()
    ending = Ending(at=attempt.reserved_at + hour, place=("onprem", "gpu"), gpus_per_node=2, nodes=1)
    assert seen(services).endings == (ending,)


def test_on_premises_and_the_cloud_are_as_busy_as_they_were_measured(services: Services) -> None:
    at = services.clock() - timedelta(minutes=1)
    onprem, cloud = (
        PoolSample(cluster=name, pool="gpu", gpus=8.0, used_gpus=used, nodes=2.0, idle_nodes=0.0)
        for name, used in (("onprem", 7.0), ("cloud", 3.0))
    )
    services.ledger.record_sample(Sample(at=at, pools=(onprem, cloud)))
    found = seen(services)
    busy = UsePoint(at=at, gpus=8, used_gpus=7, queued_jobs=0, pending_gpus=0)
    assert (found.local, found.cloud) == ((busy,), (replace(busy, used_gpus=3),))
