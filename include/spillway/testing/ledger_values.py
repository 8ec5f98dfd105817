"""Values with safe defaults for tests of the ledger, and a placement that only counts GPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from spillway.ledger import Ledger
from spillway.model import (
    Attempt,
    Billing,
    Candidate,
    CoolDown,
    CostEntry,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    Priority,
    Reservation,
    Snapshot,
)

NOW = datetime(2026, 3, 2, 9, 30, 0, 123456, tzinfo=UTC)
LEASE = timedelta(minutes=10)
PLACE = Candidate(cluster="onprem", pool="a100", billing=Billing.OWNED)
SNAPSHOT = Snapshot(taken_at=NOW, clusters=(), unreachable={"cloud": "connection refused"})
POLICY = PlacementPolicy(weights={"price": Decimal("0.7")}, quotas={})

Decide = Callable[[tuple[Reservation, ...], tuple[CoolDown, ...]], PlacementDecision]


def a_job(**changes: Any) -> JobSpec:
    """A job of one GPU."""
    job = JobSpec(
        name="llm-7b",
        department="nlp",
        priority=Priority.RESEARCH,
        image="train:v1",
        command=("python", "-m", "train"),
        gpus_per_node=1,
    )
    return dataclasses.replace(job, **changes)


def counting(job: JobSpec, *, capacity: int, place: Candidate = PLACE) -> Decide:
    """A pure placement: ``place`` while the GPUs promised at its cluster leave enough of ``capacity``."""

    def decide(reservations: tuple[Reservation, ...], _resting: tuple[CoolDown, ...]) -> PlacementDecision:
        promised = sum(r.gpus_per_node * r.nodes for r in reservations if r.cluster == place.cluster)
        chosen = place if promised + job.gpus <= capacity else None
        return PlacementDecision(job=job.name, taken_at=NOW, chosen=chosen, possible=True, verdicts=())

    return decide


def reserve(
    ledger: Ledger, run: str, job: JobSpec | None = None, *, now: datetime = NOW, decide: Decide | None = None
) -> tuple[Attempt | None, PlacementDecision]:
    """Open a run and reserve for it, on unlimited GPUs unless ``decide`` counts them."""
    job = job or a_job()
    ledger.open_run(run, job, {"dag_id": "train", "run_id": run}, now)
    return ledger.reserve(
        run,
        job,
        now=now,
        lease=LEASE,
        snapshot=SNAPSHOT,
        policy=POLICY,
        decide=decide or counting(job, capacity=10**6),
    )


def reserved(ledger: Ledger, run: str, *, now: datetime = NOW) -> Attempt:
    """The open attempt of a new run."""
    attempt, _ = reserve(ledger, run, now=now)
    assert attempt is not None
    return attempt


def a_cost(attempt: str = "r-1", **changes: Any) -> CostEntry:
    """Two GPU-hours for 5.00 of a pod of the attempt."""
    entry = CostEntry(
        cluster="onprem",
        pod_uid=f"uid-of-{attempt}",
        attempt=attempt,
        department="nlp",
        job="llm-7b",
        billing=Billing.OWNED,
        gpus=1,
        gpu_hours=Decimal(2),
        price_per_gpu_hour=Decimal("2.50"),
        amount=Decimal("5.00"),
        started_at=NOW,
        ended_at=NOW + timedelta(hours=2),
    )
    return dataclasses.replace(entry, **changes)
