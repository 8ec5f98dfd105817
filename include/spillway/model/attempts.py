"""Attempts, their one state machine, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from spillway.model.decisions import Candidate
from spillway.model.jobs import JobSpec
from spillway.model.pools import Billing


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
    MIGRATED = "migrated"
    STALLED = "stalled"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def goes_on(self) -> bool:
        """Whether the run goes on with another attempt: its place was lost or left, or it did nothing any more."""
        return self in {Outcome.PREEMPTED, Outcome.MIGRATED, Outcome.STALLED}


class VerdictKind(StrEnum):
    """What became of an attempt's pod.

    ``TASK_ENDED``: its task in Airflow was marked, cleared or killed. ``MIGRATED``: it was asked to end for a move.
    ``DISPLACED``: it was asked to end for a job that comes first. ``STALLED``: it was asked to end because its trainer
    did nothing any more.
    """

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PREEMPTED = "preempted"
    LOST_NODE = "lost-node"
    PROGRAM_ERROR = "program-error"
    IMAGE_MISSING = "image-missing"
    START_TIMEOUT = "start-timeout"
    DELETED_BY_PERSON = "deleted-by-person"
    TASK_ENDED = "task-ended"
    MIGRATED = "migrated"
    DISPLACED = "displaced"
    STALLED = "stalled"
    FENCED = "fenced"
    CLUSTER_UNREACHABLE = "cluster-unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a run at one place: a row of the ledger. ``run`` is a DNS label, ``number`` starts at 1.

    ``ending`` is how it ended, or is about to while it is open; None where nobody has seen it end. ``ended_at`` is when
    its pod did, as far as that is known; ``settled_at`` is when that was put on record. The two prices are those of the
    moment that it was reserved, of a core where its job takes no GPU; None where they were not known, as of attempts of
    older releases. ``committed_at`` is when its trainer told of ``committed_step``; None where that is not known.
    ``displaces`` are labels of attempts that end to make room for this one, ``displacing_at`` is when they were asked
    to; its pod is launched once they have.
    """

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
    committed_at: datetime | None = None
    displaces: tuple[str, ...] = ()
    displacing_at: datetime | None = None
    outcome: Outcome | None = None
    ending: VerdictKind | None = None
    reason: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    settled_at: datetime | None = None
    price_per_gpu_hour: Decimal | None = None
    fixed_cost_per_gpu_month: Decimal | None = None

    @property
    def label(self) -> str:
        """The value of the attempt label on the pod and of its reservation; also the pod's name."""
        return f"{self.run}-{self.number}"

    @property
    def expected_first_step(self) -> int:
        """The step after the one that it resumes from; 1 where it begins anew."""
        return 1 if self.resumed_from_step is None else self.resumed_from_step + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEntry:
    """One booking; its identity is (cluster, pod_uid, attempt).

    It is of ``gpus``, or of ``cores`` where the pod had no GPU; then both prices are of a core. ``gpu_hours`` are from
    the start to the end of its pod, and ``amount`` is that time at the price per hour. The share of the pool's fixed
    cost comes on top (``attribution.by_month``). ``utilisation`` in [0, 1] is how busy its GPUs were; None where nobody
    measured it, as ``reserved_at`` and ``pool`` are where nobody recorded them.
    """

    cluster: str
    pod_uid: str
    attempt: str
    department: str
    job: str
    billing: Billing
    gpus: Decimal
    gpu_hours: Decimal
    price_per_gpu_hour: Decimal
    amount: Decimal
    started_at: datetime
    ended_at: datetime
    pool: str | None = None
    business_scene: str | None = None
    reserved_at: datetime | None = None
    utilisation: Decimal | None = None
    fixed_cost_per_gpu_month: Decimal = Decimal(0)
    cores: Decimal = Decimal(0)

    @property
    def priced_units(self) -> Decimal:
        """What the price of an hour is of."""
        return self.gpus or self.cores
