"""Demand for GPUs as it was and as it is thought to be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.model.declared import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """One job of a history, own or public. ``submitted_at`` is when it asked for its GPUs.

    ``gpus`` are all of them, on ``nodes`` nodes (1 where a trace does not tell). ``started_at`` and ``ended_at`` are
    None where it has not yet, or nobody wrote it down; what a trace does not tell (``priority``, ``department``,
    ``gpu_type``, ``duration_estimate``) is None too. ``held_for`` is how long it held its GPUs where that is less than
    from its start to its end: it was interrupted. ``dataset_gib`` is what it reads, ``checkpoint_gib`` what it commits
    at a time; histories that are imported keep neither.
    """

    job: str
    submitted_at: datetime
    gpus: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    nodes: int = 1
    priority: Priority | None = None
    department: str | None = None
    gpu_type: str | None = None
    duration_estimate: timedelta | None = None
    held_for: timedelta | None = None
    dataset_gib: float | None = None
    checkpoint_gib: float | None = None

    @property
    def duration(self) -> timedelta | None:
        """How long it held its GPUs; None while it has not ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.started_at if self.held_for is None else self.held_for


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandSeries:
    """GPUs wanted (running and queued), the mean of each step from ``starts_at``. None is a gap: nobody measured."""

    starts_at: datetime
    step: timedelta
    gpus: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """GPUs wanted at each step after ``made_at``, rounded up: a row a step, a column a quantile, rising in a row.

    ``model`` made it; ``reason`` is why that one, and what it lacked. ``coverage`` is the part of the history that was
    measured, in [0, 1].
    """

    made_at: datetime
    step: timedelta
    quantiles: tuple[float, ...]
    gpus: tuple[tuple[int, ...], ...]
    model: str
    reason: str
    coverage: float = 1.0
