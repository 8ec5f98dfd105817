"""Which committed steps stay: the last ones, every so many, the best ones. Pure; nothing is deleted here.

    a step                                                    stays
    the newest                                                always
    younger than ``minimum_age``                              always
    named by the caller (resumed from, the only valid one)    always
    of a branch that was given up                             only by one of the lines above
    among the ``last`` newest, a multiple of ``every_steps``,
    or among the ``best``                                     yes
    any other                                                 no

A **branch is given up** when a later attempt goes on from an older step: what the earlier attempt had committed beyond
is not what the run was continued from. So a step lives while no later attempt has committed that step or a lower one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spillway.checkpoints.layout import CommittedStep
from spillway.model import Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A committed step as retention sees it. ``metric`` is the one that ``best`` goes by; None where it is unknown."""

    entry: CommittedStep
    created_at: datetime
    metric: float | None = None


def keep(
    steps: Iterable[StepRecord], retention: Retention, now: datetime, *, pinned: Iterable[CommittedStep] = ()
) -> frozenset[CommittedStep]:
    """The steps that stay. ``pinned`` ones do whatever the rules say."""
    ordered = sorted(steps, key=lambda record: record.entry.age_order)
    kept = set(pinned) & {record.entry for record in ordered}
    kept |= {record.entry for record in ordered if now - record.created_at < retention.minimum_age}
    kept |= {record.entry for record in ordered[-1:]}
    alive = living(ordered)
    kept |= {record.entry for record in alive[max(0, len(alive) - retention.last) :]}
    if retention.every_steps:
        kept |= {record.entry for record in alive if record.entry.step % retention.every_steps == 0}
    return frozenset(kept | _best(alive, retention))


def living(steps: Iterable[StepRecord]) -> tuple[StepRecord, ...]:
    """The steps of the branch that the run goes on, oldest first."""
    alive: list[StepRecord] = []
    for record in sorted(steps, key=lambda record: record.entry.age_order, reverse=True):
        if not alive or record.entry.step < alive[-1].entry.step:
            alive.append(record)
    return tuple(reversed(alive))


def metric_of(metrics: Mapping[str, Any], name: str) -> float | None:
    """The metric of a step: a number, or the last value of a curve [[step, value], ...]; None for anything else."""
    value = metrics.get(name)
    if isinstance(value, (list, tuple)) and value and isinstance(value[-1], (list, tuple)) and value[-1]:
        value = value[-1][-1]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _best(alive: Iterable[StepRecord], retention: Retention) -> set[CommittedStep]:
    """Of equal ones the newer is better: it has learned longer."""
    sign = -1 if retention.highest_is_best else 1
    ranked = sorted(
        (sign * record.metric, -record.entry.attempt, -record.entry.step, record.entry)
        for record in alive
        if record.metric is not None and math.isfinite(record.metric)
    )
    return {entry for *_, entry in ranked[: retention.best]}
