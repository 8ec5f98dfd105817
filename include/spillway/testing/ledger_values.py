"""Values with safe defaults for tests of the ledger, and a placement that only counts GPUs."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from spillway.ledger import Ledger
from spillway.ledger.values import Decide
from spillway.model import (
    Attempt,
    Billing,
    Candidate,
    CostEntry,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    Snapshot,
)
from spillway.testing.builders import candidate, job_spec, placement_policy, snapshot

# With microseconds, which no backend may drop.
NOW = datetime(2026, 3, 2, 9, 30, 0, 123456, tzinfo=UTC)
LEASE = timedelta(minutes=10)
PLACE = candidate()
SNAPSHOT = snapshot(taken_at=NOW, unreachable={"far": "connection refused"})
POLICY = placement_policy()


def counting(job: JobSpec, *, capacity: int, place: Candidate = PLACE) -> Decide:
    """A pure placement: ``place`` while the GPUs promised at its cluster leave enough of ``capacity``."""

    def decide(whole: Snapshot) -> PlacementDecision:
        promised = sum(r.gpus_per_node * r.nodes for r in whole.reservations if r.cluster == place.cluster)
        chosen = place if promised + job.gpus <= capacity else None
        return PlacementDecision(job=job.name, taken_at=NOW, chosen=chosen, possible=True, verdicts=())

    return decide


def reserve(
    ledger: Ledger,
    run: str,
    job: JobSpec | None = None,
    *,
    now: datetime = NOW,
    decide: Decide | None = None,
    seen: Snapshot = SNAPSHOT,
    policy: PlacementPolicy = POLICY,
) -> tuple[Attempt | None, PlacementDecision]:
    """Open a run and reserve for it, on unlimited GPUs unless ``decide`` says otherwise."""
    job = job or job_spec()
    decide = decide or counting(job, capacity=10**6)
    ledger.open_run(run, job, {"dag_id": "train", "run_id": run}, now)
    return ledger.reserve(run, job, now=now, lease=LEASE, snapshot=seen, policy=policy, decide=decide)


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
        gpus=Decimal(1),
        gpu_hours=Decimal(2),
        price_per_gpu_hour=Decimal("2.50"),
        amount=Decimal("5.00"),
        started_at=NOW,
        ended_at=NOW + timedelta(hours=2),
    )
    return dataclasses.replace(entry, **changes)
