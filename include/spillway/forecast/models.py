"""What may be forecast with: each candidate is a point and the columns that its errors depend on.

The rules of ``baselines`` have no columns. The stacks put the rules, survival and how busy the last steps were
together by a quantile regression with a ridge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from spillway.forecast import baselines
from spillway.forecast.base import Floats, History, Integers
from spillway.forecast.series import asked_until
from spillway.forecast.survival import Curves, arriving, staying

SURVIVAL = "survival"
BUSY_STEPS = (1, 3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """A candidate at origins and steps: GPUs (m, k), and the columns of its errors (m, k, c)."""

    points: Floats
    columns: Floats


Seen = Mapping[str, Floats]
"""What the candidates are made of, each (m, k)."""


def seen(
    history: History, origins: Integers, steps: Integers, curves: Curves | None, names: Collection[str]
) -> dict[str, Floats]:
    """What the candidates of those names are made of at those origins and steps, and the current count."""
    of_jobs = not OF_JOBS.isdisjoint(names)
    needed = {COUNT, *names, *((LAST,) if of_jobs else ())}
    found = {name: rule(history, origins, steps) for name, rule in RULES.items() if name in needed}
    if not of_jobs or history.jobs is None or curves is None:
        return found
    jobs, moments, shape = history.jobs, history.moments(origins), (len(origins), len(steps))
    stay, come = staying(history, origins, steps, curves), arriving(history, origins, steps, curves)
    found |= {SURVIVAL: stay + come, "leaving": found[COUNT] - stay, "arriving": come}
    found["momentum"] = found[COUNT] - found[LAST]
    found["lately"] = np.broadcast_to(baselines.lately(history, origins)[:, None], shape)
    for events, side, what in ((jobs.submitted, "left", "asked"), (jobs.ended, "right", "ended")):
        edges = np.stack([moments, *(moments - lasting * history.step.total_seconds() for lasting in BUSY_STEPS)])
        now, *before = asked_until(events, jobs.gpus, edges, side=side)
        for lasting, then in zip(BUSY_STEPS, before, strict=True):
            moved = np.sqrt(np.maximum(now - then, 0.0))
            found[f"{what} {lasting}"] = np.broadcast_to(moved[:, None], shape)
    return found


def terms(name: str, values: Seen) -> Terms:
    """The candidate of that name; those that need jobs are for histories that have them."""
    candidate = CANDIDATES[name]
    points = values[candidate.base]
    found = [column(values) for column in candidate.columns]
    columns = np.stack(found, axis=-1) if found else np.zeros((*points.shape, 0))
    return Terms(points=points, columns=columns)


Column = Callable[[Seen], Floats]


def _of(name: str) -> Column:
    return lambda values: values[name]


def _above(name: str, other: str) -> Column:
    return lambda values: values[name] - values[other]


TWO_WEEKS, THREE_MONTHS, DAY_BEFORE, LAST, COUNT = (
    "two-week rule", "three-month rule", "day before", "last step", "current count"
)  # fmt: skip
RULES: dict[str, baselines.Rule] = {
    TWO_WEEKS: baselines.same_time_of_day,
    THREE_MONTHS: baselines.three_months,
    DAY_BEFORE: baselines.day_before,
    LAST: baselines.last_step,
    COUNT: baselines.current_count,
}

BUSY = tuple(_of(f"{what} {lasting}") for what in ("asked", "ended") for lasting in BUSY_STEPS)


@dataclass(frozen=True, slots=True)
class Candidate:
    """The point that it begins with, and the columns of its errors."""

    base: str
    columns: tuple[Column, ...] = ()


STACKS = {
    "stack on the count": Candidate(COUNT, (*BUSY, _of("momentum"), _of("leaving"), _of("arriving"))),
    "stack on survival": Candidate(SURVIVAL, (_of(SURVIVAL), _above(COUNT, SURVIVAL), _of("lately"))),
}
OF_JOBS = frozenset({SURVIVAL, *STACKS})
"""Those that need a job table."""

CANDIDATES = {**{name: Candidate(name) for name in (*RULES, SURVIVAL)}, **STACKS}
