"""Decisions with their reasons: every candidate keeps its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from spillway.model.declared import Billing


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    cluster: str
    pool: str
    billing: Billing


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a candidate is out. ``waits`` is True where time alone can change it (full now), False where it cannot."""

    rule: str
    reason: str
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementVerdict:
    """One row of the table of candidates. ``scores`` are normalised terms in [0, 1], ``total`` their weighted sum."""

    candidate: Candidate
    rejections: tuple[Rejection, ...]
    scores: Mapping[str, float]
    total: float
    price_per_gpu_hour: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """``chosen`` is None when nothing fits now; ``possible`` tells waiting from never."""

    job: str
    taken_at: datetime
    chosen: Candidate | None
    possible: bool
    verdicts: tuple[PlacementVerdict, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)
