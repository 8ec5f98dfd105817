"""Which committed steps stay: the last ones, every so many, the best ones. Pure; nothing is deleted here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A committed step as retention sees it. ``loss`` is None where it is unknown; such a step is never a best one."""

    step: int
    attempt: int
    created_at: datetime
    loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A step stays when any of these keeps it; the newest one always stays.

    ``last`` newest steps, ``every_steps`` multiples (0 = none), ``best`` steps of the lowest loss, and every step that
    is younger than ``minimum_age``, which has to be longer than anybody takes to read a checkpoint.
    """

    last: int = 3
    every_steps: int = 0
    best: int = 1
    minimum_age: timedelta = timedelta(hours=1)


def keep(steps: Iterable[StepRecord], retention: Retention, now: datetime) -> frozenset[StepRecord]:
    """The steps that stay, in the order of HEAD: the newest is the highest (attempt, step) pair."""
    ordered = sorted(steps, key=lambda record: (record.attempt, record.step))
    kept = set(ordered[-max(1, retention.last) :])
    if retention.every_steps:
        kept |= {record for record in ordered if record.step % retention.every_steps == 0}
    known = [(record.loss, record) for record in ordered if record.loss is not None and math.isfinite(record.loss)]
    kept |= {record for _, record in sorted(known, key=lambda pair: pair[0])[: retention.best]}
    kept |= {record for record in ordered if now - record.created_at < retention.minimum_age}
    return frozenset(kept)
