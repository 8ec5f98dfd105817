"""Attempts, their one state machine, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from spillway.model.decisions import Candidate
from spillway.model.declared import Billing, JobSpec


class AttemptState(StrEnum):
    """The one state machine: each attempt passes these in order and may be settled from any of them."""

    RESERVED = "reserved"
    STAGED = "staged"
    LAUNCHED = "launched"
    RUNNING = "running"
    SETTLED = "settled"


class Outcome(StrEnum):
    SUCCEEDED = "succeeded"
    PREEMPTED = "preempted"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a run at one place: a row of the ledger. ``run`` is a DNS label, ``number`` starts at 1."""

    run: str
    number: int
    job: JobSpec
    state: AttemptState
    candidate: Candidate
    reserved_at: datetime
    lease_expires_at: datetime
    image_digest: str | None = None
    pod_uid: str | None = None
    node: str | None = None
    resumed_from_step: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    committed_step: int | None = None
    outcome: Outcome | None = None
    reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def label(self) -> str:
        """The value of the attempt label on the pod and of its reservation; also the pod's name."""
        return f"{self.run}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEntry:
    """One booking; its identity is (cluster, pod_uid, attempt)."""

    cluster: str
    pod_uid: str
    attempt: str
    department: str
    job: str
    billing: Billing
    gpus: int
    gpu_hours: Decimal
    price_per_gpu_hour: Decimal
    amount: Decimal
    started_at: datetime
    ended_at: datetime
