"""Decisions with their reasons: every candidate keeps its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from spillway.model.pools import Billing


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    cluster: str
    pool: str
    billing: Billing


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where somebody wants a run to go; what is None is left to the policy. ``leaving`` is where it is now.

    ``spot``: whether a place will do that may be taken away.
    """

    cluster: str | None = None
    pool: str | None = None
    billing: Billing | None = None
    leaving: Candidate | None = None
    spot: bool = True

    def allows(self, candidate: Candidate) -> bool:
        wanted = ((self.cluster, candidate.cluster), (self.pool, candidate.pool), (self.billing, candidate.billing))
        if candidate == self.leaving or (candidate.billing is Billing.SPOT and not self.spot):
            return False
        return all(want in {None, has} for want, has in wanted)

    def __str__(self) -> str:
        """``cluster/pool/billing`` as far as it is said; where nothing is, ``best``, or ``not-spot``."""
        said = "/".join(part for part in (self.cluster, self.pool, self.billing) if part)
        return said or ("best" if self.spot else "not-spot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a candidate is out. ``waits`` is True where time alone can change it (full now), False where it cannot."""

    rule: str
    reason: str
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferEstimate:
    """What bringing data to a place takes; ``egress`` is money. None is unknown, never nothing."""

    size_bytes: int | None = None
    duration: timedelta | None = None
    egress: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementVerdict:
    """One row of the table of candidates. ``scores`` are normalised terms in [0, 1], ``total`` their weighted sum.

    ``transfer`` is what the job's dataset takes to get there; None where nobody looked. ``full_price_per_gpu_hour`` is
    the price with that in it, over the time that the job is expected to train; None too where a part of it is unknown.
    """

    candidate: Candidate
    rejections: tuple[Rejection, ...]
    scores: Mapping[str, float]
    total: float
    price_per_gpu_hour: Decimal | None = None
    transfer: TransferEstimate | None = None
    full_price_per_gpu_hour: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """An attempt that gives way, by its label. ``lost_gpu_seconds`` is what it did since its newest committed step."""

    attempt: str
    lost_gpu_seconds: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionPlan:
    """Who gives way so that a job which fits nowhere now fits at ``place``; None where nobody's end brings it one.

    ``spared`` is why each other open attempt does not, by its label.
    """

    place: Candidate | None
    victims: tuple[Victim, ...]
    spared: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """``chosen`` is None when nothing fits now; ``possible`` tells waiting from never.

    Where ``preemption`` has victims ``chosen`` is the place that it makes; None where nobody was asked to give way.
    ``verdicts`` is the table of all candidates, or the row of the chosen one alone where nobody has asked for more.
    ``queues_at`` has the pools, each (cluster, pool), where a job without a place lacks nothing but room; one that
    lacks more everywhere waits outside of the queue. ``needs_correction``: every place that could still hold the job
    is misconfigured, so that waiting alone brings nothing. ``rules`` is the number of the rules that decided; 0 of
    those that had none yet.
    """

    job: str
    taken_at: datetime
    chosen: Candidate | None
    possible: bool
    verdicts: tuple[PlacementVerdict, ...]
    unreachable: Mapping[str, str] = field(default_factory=dict)
    queues_at: frozenset[tuple[str, str]] = frozenset()
    needs_correction: bool = False
    preemption: PreemptionPlan | None = None
    rules: int = 0
