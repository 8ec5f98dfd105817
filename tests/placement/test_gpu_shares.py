"""Jobs that take a part of a GPU: where they fit, and how exactly they count."""

from __future__ import annotations

from decimal import Decimal

import pytest

from spillway.model import GpuShare, JobSpec, NodePool, QuotaShare, Rejection, Reservation, SiteKind, Snapshot
from spillway.placement.policy import place
from spillway.quota import gpus_in_use
from spillway.testing.builders import (
    candidate,
    cluster_state,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    pod,
    reservation,
    snapshot,
)

HALVES = GpuShare(resource="nvidia.com/mig-3g.40gb", per_gpu=2, memory_gib=40)
SEVENTHS = GpuShare(resource="nvidia.com/mig-1g.10gb", per_gpu=7, memory_gib=10)
HALF = job_spec(gpu_fraction=Decimal("0.5"))


def shared(share: GpuShare | None = HALVES, *, gpus: int = 1, nodes: int = 1) -> NodePool:
    return node_pool(gpu_share=share, gpus_per_node=gpus, max_nodes=nodes)


def seen(pool: NodePool, *promised: Reservation, **state: object) -> Snapshot:
    return snapshot(cluster_state(onprem_cluster(pools=(pool,)), **state), reservations=promised)  # type: ignore[arg-type]


def promises(count: int, part: Decimal) -> tuple[Reservation, ...]:
    return tuple(reservation(attempt=f"other-{number}", gpu_fraction=part) for number in range(count))


def said(job: JobSpec, whole: Snapshot, **policy: object) -> tuple[Rejection, ...]:
    [verdict] = place(job, whole, placement_policy(**policy)).verdicts
    return verdict.rejections


def test_two_halves_share_one_gpu_and_a_third_does_not_fit() -> None:
    half = Decimal("0.5")
    assert place(HALF, seen(shared(), *promises(1, half)), placement_policy()).chosen == candidate()
    assert [(r.rule, r.reason, r.waits) for r in said(HALF, seen(shared(), *promises(2, half)))] == [
        ("quota", "needs 0.5 GPUs, 'research' has 0 of 1 GPU at onprem left", True),
        ("full", "needs 0.5 of a GPU, 0 of them fit now; the largest free block is 0", True),
    ]


@pytest.mark.parametrize(
    ("job", "share", "reason"),
    [
        (HALF, None, "needs 0.5 of a GPU, the pool gives whole ones only"),
        (job_spec(), HALVES, "needs whole GPUs, the pool gives them in parts of 0.5 only"),
        (HALF, SEVENTHS, "needs 0.5 of a GPU, the pool gives them in parts of 0.142 only"),
    ],
    ids=["a part of whole ones", "a whole one of parts", "another part"],
)
def test_a_part_is_taken_where_gpus_are_given_away_in_such_parts(
    job: JobSpec, share: GpuShare | None, reason: str
) -> None:
    assert said(job, seen(shared(share))) == (Rejection(rule="gpu-share", reason=reason, waits=False),)


def test_the_memory_that_counts_is_that_of_the_part() -> None:
    wants = job_spec(gpu_fraction=Decimal("0.5"), gpu_memory_gib=80)
    assert [r.reason for r in said(wants, seen(shared()))] == ["needs 80 GiB a GPU, the pool's have 40"]


def test_parts_add_up_exactly_in_the_quota() -> None:
    """In floats ten tenths are less than one, and three are more than three tenths."""
    tenths = GpuShare(resource="nvidia.com/gpu.shared", per_gpu=10, memory_gib=8)
    pool, tenth = shared(tenths, gpus=8), job_spec(gpu_fraction=Decimal("0.1"))
    quotas = {"research": QuotaShare(onprem=Decimal("0.125"), cloud=Decimal(0)),
              "others": QuotaShare(onprem=Decimal("0.875"), cloud=Decimal(0))}  # fmt: skip
    full, nearly = promises(10, tenths.fraction), promises(9, tenths.fraction)
    assert gpus_in_use(full, [onprem_cluster()], SiteKind.ONPREM) == {"research": Decimal(1)}
    assert said(tenth, seen(pool, *nearly), quotas=quotas) == ()
    assert [r.rule for r in said(tenth, seen(pool, *full), quotas=quotas)] == ["quota"]


def test_a_pod_takes_room_only_of_what_it_asks_for() -> None:
    """Foreign pods: one that waits for a whole GPU, and one on the node that has a part of another size."""
    pods = [pod(name="pending", gpus=1), pod(name="other-part", node="a100-0", gpus=2, gpu_resource=SEVENTHS.resource)]
    assert said(HALF, seen(shared(), pods=pods)) == ()
    halves = [pod(name=name, gpu_resource=HALVES.resource) for name in ("one", "two")]
    assert [r.rule for r in said(HALF, seen(shared(), pods=halves))] == ["full"]
