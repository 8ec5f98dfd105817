"""A department takes back from runs of its own level what it has lent, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from spillway.model import JobSpec, PlacementPolicy, Priority, QuotaShare, Snapshot
from spillway.testing.builders import cluster_state, job_spec, node_pool, onprem_cluster, pod
from spillway.testing.training_attempts import PREEMPTING, plan, site, trains, victims

SHARES = {
    "research": QuotaShare(onprem=Decimal("0.5"), cloud=Decimal(0)),
    "nlp": QuotaShare(onprem=Decimal("0.5"), cloud=Decimal(0)),
}
LENDING = replace(PREEMPTING, quotas=SHARES, borrowing=True)
OWN = job_spec(name="own", department="nlp", gpus_per_node=4, priority=Priority.RESEARCH)


def test_a_department_takes_back_what_it_lent_from_runs_of_the_same_level() -> None:
    borrowers = [trains(f"b{i}-1", gpus=2, committed=i + 1) for i in range(4)]
    told = plan(OWN, site(*borrowers, nodes=1), LENDING)
    assert [v.attempt for v in told.victims] == ["b0-1", "b1-1"]
    assert told.victims[0].reason == "'research' borrows its GPUs, and it committed 2026-01-05T11:59:00+00:00"


def test_no_more_is_taken_back_than_was_lent() -> None:
    """One of the eight is lent: once one of them has ended the other one is on what is its department's own."""
    lent = [trains(f"b{i}-1", gpus=2, committed=i + 1) for i in range(2)]
    seen = site(*lent, trains("stays-1", gpus=1, on=("a100-1",), interruptible=False))
    cluster = onprem_cluster(pools=(node_pool(max_nodes=2, gpus_per_node=4),))
    small = replace(seen, clusters=(cluster_state(cluster, pods=seen.clusters[0].pods),))
    assert plan(OWN, small, LENDING).victims == ()
    assert [v.attempt for v in plan(replace(OWN, gpus_per_node=2), full(small), LENDING).victims] == ["b0-1"]


def full(seen: Snapshot) -> Snapshot:
    """The same with a pod of nobody's on all that is free of the second node."""
    (state,) = seen.clusters
    return replace(seen, clusters=(replace(state, pods=(*state.pods, pod(name="x", gpus=3, node="a100-1"))),))


@pytest.mark.parametrize(
    ("job", "policy"),
    [
        (replace(OWN, priority=Priority.EXPLORATION), LENDING),
        (replace(OWN, gpus_per_node=5, spot_ok=True), LENDING),
        (replace(OWN, department="research"), LENDING),
    ],
    ids=["of a lower level", "beyond its own", "of the one that borrows"],
)
def test_borrowed_gpus_are_not_taken_back_for_a_job(job: JobSpec, policy: PlacementPolicy) -> None:
    borrowers = [trains(f"b{i}-1", gpus=2, committed=i + 1) for i in range(4)]
    assert plan(job, site(*borrowers, nodes=1), policy).victims == ()


def test_nobody_gives_way_so_that_a_job_may_borrow() -> None:
    """It would borrow what its owner's job of lower priority uses now."""
    own = [trains("own-1", department="nlp", gpus=4, committed=1), trains("used-1", gpus=4, committed=60)]
    job = replace(OWN, department="research", priority=Priority.PRODUCTION_CORE, spot_ok=True)
    assert set(victims(job, site(*own, nodes=1), LENDING)) == {"used-1"}
