"""What only the ledger knows: where a run came from, why a place was chosen, what was moved, what was corrected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypedDict

from spillway.model import (
    CostEntry,
    Forecast,
    JobSpec,
    PlacementDecision,
    PlacementPolicy,
    PoolTarget,
    ScalingSnapshot,
    Snapshot,
    Tier,
    VerdictKind,
)
from spillway.scaling.rules import ScalingRules

Decide = Callable[[Snapshot], PlacementDecision]
"""A pure decision on a snapshot with all the promises and cool-downs of its moment."""

StillNeeded = Callable[[Snapshot, tuple[str, ...]], tuple[str, ...] | None]
"""Of attempts, by their labels, those that have to end on such a snapshot; None where that does not help."""


class AttemptFacts(TypedDict, total=False):
    """What becomes known of an attempt on its way; a fact that is left out or None stays as it is on record."""

    image_digest: str | None
    pod_uid: str | None
    node: str | None
    resumed_from_step: int | None
    first_step: int | None
    last_step: int | None
    committed_step: int | None
    committed_at: datetime | None
    ending: VerdictKind | None
    started_at: datetime | None
    ended_at: datetime | None
    price_per_gpu_hour: Decimal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run; ``origin`` is plain JSON that names what asked for it (the ids of DAG, DAG run, task and map index).

    ``cancelled_at`` and ``cancel_reason`` are None unless a person has ended it and nobody has asked for it since.
    """

    run: str
    job: JobSpec
    origin: Mapping[str, Any]
    created_at: datetime
    cancelled_at: datetime | None = None
    cancel_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision with all that it was taken from: deciding again on these by the same rules gives the same.

    ``attempt`` is the number of the attempt it reserved, None where nothing was chosen. ``snapshot`` holds the live
    reservations and cool-downs of that moment.
    """

    run: str
    attempt: int | None
    taken_at: datetime
    job: JobSpec
    snapshot: Snapshot
    policy: PlacementPolicy
    decision: PlacementDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentDecision:
    """A decision without what it was taken from; ``origin`` is its run's."""

    run: str
    attempt: int | None
    decision: PlacementDecision
    origin: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingLook:
    """What the scaler planned at one look, and all that it was planned from.

    ``forecasts`` are by (cluster, pool), as ``plan_scaling`` takes them.
    """

    snapshot: ScalingSnapshot
    forecasts: Mapping[tuple[str, str], Forecast]
    rules: ScalingRules
    plan: tuple[PoolTarget, ...]


class TransferKind(StrEnum):
    IMAGE = "image"
    DATASET = "dataset"
    CHECKPOINT = "checkpoint"


class TransferOutcome(StrEnum):
    COPIED = "copied"
    READ = "read"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One line of the evidence of where bytes went, or were kept from going; ``source`` and ``destination`` are sites.

    ``size_bytes`` is what was moved; of a failure what was read at the source, whether or not it arrived; 0 for a
    refusal. The counts of objects are of datasets, None for anything else; ``objects_withheld`` is of a line that
    refuses a group of them. ``run`` is None where no run asked for it, ``tls`` (whether both ends are encrypted),
    ``actor`` (``dag/run/task`` or ``user@host``) and ``seconds`` where not known.
    """

    kind: TransferKind
    name: str
    tier: Tier
    source: str
    destination: str
    size_bytes: int
    at: datetime
    outcome: TransferOutcome
    reason: str | None = None
    run: str | None = None
    objects_copied: int | None = None
    objects_unchanged: int | None = None
    objects_withheld: int | None = None
    tls: bool | None = None
    actor: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """A mover and the link that it moves bytes over; its measured rate is None before there is one."""

    link: str
    mover: str
    kind: TransferKind
    bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCorrection:
    """The trace of a booked cost that was changed afterwards."""

    before: CostEntry
    after: CostEntry
    reason: str
    corrected_at: datetime
