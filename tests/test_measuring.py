from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from spillway.measuring import Measured, measure
from spillway.model import (
    Attempt,
    AttemptState,
    ClusterState,
    DeviceUse,
    GpuShare,
    JobDemand,
    JobSpec,
    JobUse,
    NodeSample,
    PodStart,
    PoolSample,
    Sample,
)
from spillway.testing.builders import (
    NOW,
    attempt,
    cloud_cluster,
    cluster_state,
    cpu_pool,
    job_spec,
    node,
    node_pool,
    onprem_cluster,
    pod,
    snapshot,
)

ONPREM = frozenset({("onprem", "a100")})
BOTH = frozenset({("onprem", "a100"), ("cloud", "h100")})
HOUR = timedelta(hours=1)
OTHERS: dict[str, Any] = {"job": None, "department": None}
OURS: dict[str, Any] = {"department": "research", "priority": job_spec().priority}


def measured(
    *states: ClusterState,
    attempts: tuple[Attempt, ...] = (),
    waiting: tuple[tuple[JobSpec, frozenset[tuple[str, str]]], ...] = (),
    devices: dict[tuple[str, str], DeviceUse] | None = None,
    **fields: Any,
) -> Measured:
    return measure(NOW, snapshot(*states, **fields), attempts, waiting, devices or {})


def onprem(*nodes: Any, pods: tuple[Any, ...] = ()) -> ClusterState:
    return cluster_state(onprem_cluster(), nodes=nodes, pods=pods)


def run_of(job: JobSpec, state: AttemptState = AttemptState.LAUNCHED, **fields: Any) -> Attempt:
    return attempt(run=job.name, job=job, state=state, **fields)


def test_a_pool_has_what_its_nodes_let_pods_use_and_what_pods_use_of_it_whoever_owns_them() -> None:
    llm = job_spec(name="llm", gpus_per_node=4, business_scene="reading")
    nodes = (
        node(name="n1"),
        node(name="n2"),
        node(name="cordoned", schedulable=False),
        node(name="lost", ready=False),
        node(name="boots", allocatable_gpus=0),
        node(name="theirs", pool=None),
    )
    pods = (
        pod(name="llm-1", node="n1", gpus=4, attempt="llm-1"),
        pod(name="f1", node="n1", gpus=1),
        pod(name="f2", node="cordoned", gpus=2),
        pod(name="f3", node="lost", gpus=3),
        pod(name="f4", node="theirs", gpus=8),
        pod(name="daemon", node="boots", gpus=0, attempt="tool-1"),
    )
    found = measured(onprem(*nodes, pods=pods), attempts=(run_of(llm, AttemptState.RUNNING),)).sample
    assert found == Sample(
        at=NOW,
        pools=(
            PoolSample(
                cluster="onprem",
                pool="a100",
                gpus=21,  # two whole nodes, and what pods hold of those that take no others
                used_gpus=10,
                nodes=4,
                idle_nodes=1,
                jobs=(JobUse(gpus=6, **OTHERS), JobUse(gpus=4, **OURS | {"job": "llm", "business_scene": "reading"})),
            ),
        ),
    )


def test_an_empty_cluster_is_known_to_be_empty_and_an_unreachable_one_is_not_there() -> None:
    seen = measured(onprem(), unreachable={"cloud": "connection refused"}).sample
    assert seen == Sample(
        at=NOW,
        pools=(PoolSample(cluster="onprem", pool="a100", gpus=0, used_gpus=0, nodes=0, idle_nodes=0),),
        unknown={"cloud": "connection refused"},
    )


def test_parts_of_gpus_and_pools_without_gpus_are_counted_in_gpus() -> None:
    halves = GpuShare(resource="nvidia.com/gpu.shared", per_gpu=2, memory_gib=40)
    cluster = onprem_cluster(pools=(node_pool(gpu_share=halves, gpus_per_node=4), cpu_pool()))
    nodes = (node(allocatable_gpus=8), node(name="cpu-0", pool="cpu", allocatable_gpus=0))
    pods = (
        pod(name="h-1", node="a100-0", gpus=1, gpu_resource=halves.resource, attempt="h-1"),
        pod(name="w", gpus=3, gpu_resource=halves.resource),
        pod(name="c-1", node="cpu-0", gpus=0, attempt="c-1"),
    )
    half = job_spec(name="h", gpu_fraction=Decimal("0.5"), gpus_per_node=1)
    found = measured(cluster_state(cluster, nodes=nodes, pods=pods), attempts=(run_of(half),)).sample
    assert [(p.pool, p.gpus, p.used_gpus, p.nodes, p.idle_nodes) for p in found.pools] == [
        ("a100", 4, 0.5, 1, 0),
        ("cpu", 0, 0, 1, 0),
    ]
    assert found.queue == (JobDemand(job=None, department=None, places=ONPREM, runs=1, gpus=1.5),)


def test_the_queue_is_who_waits_for_room_who_has_it_and_no_node_yet_and_pods_of_others() -> None:
    llm, ocr = job_spec(name="llm", gpus_per_node=8, nodes=2), job_spec(name="ocr", gpus_per_node=1)
    pods = (
        pod(name="llm-1-0", node="a100-0", gpus=8, attempt="llm-1"),
        pod(name="llm-1-1", gpus=8, attempt="llm-1"),
        pod(name="foreign", gpus=2),
    )
    attempts = (
        run_of(llm),
        run_of(ocr, AttemptState.STAGED),
        run_of(replace(ocr, name="ran"), AttemptState.RUNNING),
        run_of(replace(ocr, name="elsewhere"), candidate=replace(attempt().candidate, cluster="cloud", pool="h100")),
        run_of(replace(ocr, name="undeclared"), candidate=replace(attempt().candidate, pool="gone")),
    )
    waiting = ((llm, BOTH), (llm, BOTH), (ocr, ONPREM))
    seen = measured(onprem(node(), pods=pods), attempts=attempts, waiting=waiting, unreachable={"cloud": "away"})

    def wants(job: str | None, gpus: float, runs: float = 1, places: frozenset[tuple[str, str]] = ONPREM) -> JobDemand:
        return JobDemand(places=places, runs=runs, gpus=gpus, **(OURS | {"job": job} if job else OTHERS))

    assert seen.sample.queue == (wants(None, 2), wants("llm", 32, 2, BOTH), wants("llm", 8), wants("ocr", 2, 2))
    assert (seen.sample.queued_runs, seen.sample.pending_gpus) == (6, 44)


def test_nodes_tell_their_age_whether_they_idle_and_pods_when_they_began() -> None:
    began = {"created_at": NOW - HOUR, "started_at": NOW - HOUR / 2}
    nodes = (
        node(name="idle", created_at=NOW - 3 * HOUR, ready_at=NOW - 2 * HOUR),
        node(name="busy"),
        node(name="lost", ready=False),
    )
    pods = (
        pod(name="f", node="busy", gpus=2, **began),
        pod(name="pulls", node="busy", created_at=NOW),
        pod(name="tool-1", node="busy", gpus=0, attempt="tool-1", **began),
    )
    seen = measured(onprem(*nodes, pods=pods))

    def told(name: str, gpus: float, used: float = 0, **fields: Any) -> NodeSample:
        known: dict[str, Any] = {"cluster": "onprem", "pool": "a100", "name": name, "seen_at": NOW, "gpus": gpus}
        return NodeSample(**known | {"used_gpus": used} | fields)

    assert seen.nodes == (
        told("idle", 8, created_at=NOW - 3 * HOUR, ready_at=NOW - 2 * HOUR, idle_since=NOW),
        told("busy", 8, 3),
        told("lost", 0),
    )
    assert seen.starts == (PodStart(cluster="onprem", pool="a100", pod="default/f", **began),)


def test_the_devices_of_a_pool_are_the_mean_of_those_that_told_something() -> None:
    devices = {
        ("onprem", "n1"): DeviceUse(gpus=8, utilisation=0.9, power_watts=300, temperature_celsius=70),
        ("onprem", "n2"): DeviceUse(gpus=2, utilisation=0.4, temperature_celsius=75),
        ("cloud", "n3"): DeviceUse(gpus=8, utilisation=0.1),
    }
    clouds = cluster_state(cloud_cluster(), nodes=())
    seen = measured(onprem(node(name="n1"), node(name="n2"), node(name="n3")), clouds, devices=devices).sample
    whole = DeviceUse(gpus=10, utilisation=0.8, power_watts=300, temperature_celsius=75)
    assert [(p.device, p.measured) for p in seen.pools] == [(whole, 1), (None, 0)]
