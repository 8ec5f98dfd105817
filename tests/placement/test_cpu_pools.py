"""Work without GPUs: where it runs, what it takes of a node, and what it costs."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from spillway.attribution import by_month
from spillway.model import Billing, Candidate, JobSpec, Rejection, Snapshot
from spillway.placement.policy import place
from spillway.pricing import cost, monthly_fixed_cost
from spillway.testing.builders import (
    NOW,
    cloud_cluster,
    cloud_pool,
    cluster_state,
    cpu_pool,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    pod,
    reservation,
    snapshot,
)
from spillway.testing.ledger_values import a_cost

CPU_WORK = job_spec(gpus_per_node=0, cpu_cores=16)
CPU = Candidate(cluster="onprem", pool="cpu", billing=Billing.OWNED)
ONPREM = onprem_cluster(pools=(node_pool(), cpu_pool()))


def said(job: JobSpec, seen: Snapshot, where: Candidate) -> tuple[Rejection, ...]:
    return next(v.rejections for v in place(job, seen, placement_policy()).verdicts if v.candidate == where)


def test_work_without_gpus_runs_where_there_are_none_and_other_work_does_not() -> None:
    seen = snapshot(cluster_state(ONPREM))
    decision = place(CPU_WORK, seen, placement_policy())
    assert decision.chosen == CPU
    assert {v.candidate.pool: [r.rule for r in v.rejections] for v in decision.verdicts} == {
        "cpu": [],
        "a100": ["cpu-work"],
    }
    assert said(job_spec(), seen, CPU) == (
        Rejection(rule="node-shape", reason="needs 1 GPU on one node, the pool's have 0", waits=False),
    )
    assert not place(CPU_WORK, snapshot(cluster_state(onprem_cluster())), placement_policy()).possible


def test_cores_are_counted_node_by_node_and_a_pod_of_ours_with_its_reservation_once() -> None:
    held = reservation(attempt="o-1", pool="cpu", gpus_per_node=0, cpu_millicores_per_node=24_000, nodes=2)
    pods = [pod(name=f"o-1-{n}", gpus=0, attempt="o-1", node=f"cpu-{n}", cpu_millicores=24_000) for n in (0, 1)]
    eight = job_spec(gpus_per_node=0, cpu_cores=8, nodes=2)
    for on_nodes in ([], pods):
        seen = snapshot(cluster_state(ONPREM, pods=on_nodes), reservations=(held,))
        assert said(eight, seen, CPU) == ()
        assert [(r.rule, r.reason) for r in said(CPU_WORK, seen, CPU)] == [
            ("full", "needs 1 x 16 cores, 0 of them fit now; each takes 16 cores and 1 GiB of one node")
        ]


@pytest.mark.parametrize(
    ("job", "rule", "reason"),
    [
        (job_spec(gpus_per_node=0, cpu_cores=64), "node-shape",
         "needs 64 cores and 1 GiB a node, the pool's have 32 cores and 128 GiB"),
        (job_spec(gpus_per_node=0, cpu_cores=20, nodes=3), "declared-maximum",
         "needs 3 x 20 cores, the pool never has more than 2 x 32"),
        (job_spec(gpus_per_node=0, gpu_model="H100"), "gpu-model", "needs H100, the pool has no GPUs"),
    ],
    ids=["a node", "the pool", "a model"],
)  # fmt: skip
def test_what_the_pool_never_has_is_told(job: JobSpec, rule: str, reason: str) -> None:
    assert (rule, reason, False) in [
        (r.rule, r.reason, r.waits) for r in said(job, snapshot(cluster_state(ONPREM)), CPU)
    ]


def test_the_price_of_a_core_is_weighed_against_other_cores_not_against_gpus() -> None:
    cheap = cpu_pool(name="cheap", prices_per_core_hour={Billing.ON_DEMAND: Decimal("0.03")})
    dear = cpu_pool(name="dear", prices_per_core_hour={Billing.ON_DEMAND: Decimal("0.06")})
    seen = snapshot(cluster_state(cloud_cluster(pools=(cloud_pool(), cheap, dear))))
    scores = {v.candidate.pool: v.scores["cost"] for v in place(CPU_WORK, seen, placement_policy()).verdicts}
    assert scores == {"cheap": 0.5, "dear": 0.0, "h100": 0.0}


def test_a_booking_of_cores_has_no_gpu_hours_and_costs_its_cores() -> None:
    price, fixed = Decimal("0.05"), monthly_fixed_cost(cpu_pool(fixed_cost_per_month=Decimal(640)), Billing.OWNED)
    assert fixed == 10
    hour = NOW + timedelta(hours=1)
    booked = a_cost(gpus=Decimal(0), cores=CPU_WORK.cores_paid, gpu_hours=Decimal(0), price_per_gpu_hour=price,
                    amount=cost(CPU_WORK.priced_units, NOW, hour, price), started_at=NOW, ended_at=hour,
                    fixed_cost_per_gpu_month=fixed)  # fmt: skip
    [part] = by_month(booked, "UTC")
    assert (part.billed, part.metered) == (0, Decimal("0.80"))
    assert round(part.fixed * 744, 9) == 160
