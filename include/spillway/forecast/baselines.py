"""Rules that learn nothing: the same time of day before, a day ago, the last step, what is wanted now.

Each is a function of a history, origins and steps, and gives GPUs of shape (origins, steps): the step ``h`` after an
origin is the one that ends ``h`` steps later. An origin knows nothing of what came after it. Where a rule has nothing
to look at it gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

import numpy as np

from spillway.forecast.base import Floats, History, Integers, rounded
from spillway.forecast.series import wanted_at
from spillway.model import Forecast

Rule: TypeAlias = Callable[[History, Integers, Integers], Floats]

DAY = timedelta(days=1)
TWO_WEEKS = 14
THREE_MONTHS = 91


def current_count(history: History, origins: Integers, steps: Integers) -> Floats:
    """What running and queued jobs want at the origin; of samples alone the last one that was measured."""
    if history.jobs is not None:
        now = wanted_at(history.jobs, history.moments(origins))
    else:
        now = _last_measured(history.gpus, origins)
    return np.repeat(now[:, None], len(steps), axis=1)


def last_step(history: History, origins: Integers, steps: Integers) -> Floats:
    """The mean of the last step that was measured, such as the last hour."""
    return np.repeat(_last_measured(history.gpus, origins)[:, None], len(steps), axis=1)


def lately(history: History, origins: Integers) -> Floats:
    """How much more the last three days before each origin wanted than the last seven, in the mean: (origins,).

    What survival expects errs with it. NaN where nobody measured those three.
    """
    measured = np.isfinite(history.gpus)
    total = np.concatenate([[0.0], np.cumsum(np.where(measured, history.gpus, 0.0))])
    count = np.concatenate([[0], np.cumsum(measured)])

    def mean(days: int) -> Floats:
        first = np.maximum(origins - days * history.steps(DAY), 0)
        known = count[origins] - count[first]
        return np.where(known > 0, (total[origins] - total[first]) / np.maximum(known, 1), np.nan)

    return mean(3) - mean(7)


def day_before(history: History, origins: Integers, steps: Integers) -> Floats:
    """Seasonal naive: the newest step that is known of the same time of day, so much time and not a clock's."""
    per_day = history.steps(DAY)
    back = -(-steps // per_day) * per_day
    return _picked(history.gpus, origins[:, None] + (steps - 1 - back)[None, :])


def same_time_of_day(history: History, origins: Integers, steps: Integers, days: int = TWO_WEEKS) -> Floats:
    """The mean over so many days before of the same time by the clocks of the history's zone."""
    return _mean(_same_time(history, origins, steps, days))


def three_months(history: History, origins: Integers, steps: Integers) -> Floats:
    """The same over 91 days."""
    return same_time_of_day(history, origins, steps, THREE_MONTHS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SameTimeOfDay:
    """The same time of day over the past days, its quantiles those of the values it has seen: nothing to learn.

    Where that time of day was never measured the nearest thing is taken, in this order: all of those days, the last
    value that was measured.
    """

    days: int = TWO_WEEKS

    @property
    def model(self) -> str:
        return f"same time of day over {self.days} days"

    def predict(self, history: History, horizon: int, quantiles: Sequence[float]) -> Forecast:
        history.require_measured()
        now, steps = np.array([history.present]), np.arange(1, horizon + 1)
        seen = _same_time(history, now, steps, self.days)[0]
        recent = history.gpus[max(0, history.present - self.days * history.steps(DAY)) :]
        recent = recent[np.isfinite(recent)]
        if not len(recent):
            recent = current_count(history, now, steps[:1])[0]
        wanted = np.empty((horizon, len(quantiles)))
        for step, values in enumerate(seen):
            measured = values[np.isfinite(values)]
            wanted[step] = np.quantile(measured if len(measured) else recent, quantiles)
        lacking = int((~np.isfinite(seen).any(axis=1)).sum())
        reason = f"{lacking} of {horizon} steps were never measured at their time of day" if lacking else ""
        return rounded(history, wanted, quantiles, model=self.model, reason=reason)


def _same_time(history: History, origins: Integers, steps: Integers, days: int) -> Floats:
    """The values, shape (origins, steps, days), newest day first; NaN where there is none."""
    targets = origins[:, None] + steps[None, :] - 1
    first, last = int(targets.min()), int(targets.max())
    offset = _clock_offsets(history, first - (days + 1) * history.steps(DAY), last + 1)
    at = targets[..., None] - history.steps(DAY) * _days_back(history, steps, days)
    # A clock that stood elsewhere then reads the same at another moment: as much later as it was behind.
    base = first - (days + 1) * history.steps(DAY)
    at = at + offset[targets - base][..., None] - offset[at - base]
    known = np.where(at < origins[:, None, None], at, -1)
    return _picked(history.gpus, known)


def _days_back(history: History, steps: Integers, days: int) -> Integers:
    """How many days before each step the newest one is that an origin knows, and those before it: (steps, days)."""
    newest = -(-steps // history.steps(DAY))
    return newest[:, None] + np.arange(days)[None, :]


def _clock_offsets(history: History, first: int, end: int) -> Integers:
    """How many steps the zone's clock is ahead of UTC at the beginning of each step of ``[first, end)``."""
    zone = ZoneInfo(history.time_zone)
    per_day = history.steps(DAY)
    marks = np.arange(first, end + per_day, per_day)
    ahead = [_ahead(history.at(int(mark)), zone, history.step) for mark in marks]
    found = np.repeat(np.array(ahead), per_day)[: end - first]
    for index in np.flatnonzero(np.diff(ahead)):  # a day in which the clocks are changed, step by step
        for step in range(int(marks[index]), min(end, int(marks[index + 1]))):
            found[step - first] = _ahead(history.at(step), zone, history.step)
    return found


def _ahead(moment: datetime, zone: ZoneInfo, step: timedelta) -> int:
    """Whole steps, always rounded the same way: clocks of half an hour to UTC change by an hour like all others."""
    return (moment.astimezone(UTC).astimezone(zone).utcoffset() or timedelta()) // step


def _picked(gpus: Floats, at: Integers) -> Floats:
    """The values at those places; NaN outside of the history."""
    inside = (at >= 0) & (at < len(gpus))
    padded = np.append(gpus, np.nan)
    return padded[np.where(inside, at, len(gpus))]


def _mean(values: Floats) -> Floats:
    """Over the last axis, of those that were measured."""
    measured = np.isfinite(values)
    count = measured.sum(axis=-1)
    total = np.where(measured, values, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _last_measured(gpus: Floats, origins: Integers) -> Floats:
    places = np.where(np.isfinite(gpus), np.arange(len(gpus)), -1)
    newest = np.concatenate([[-1], np.maximum.accumulate(places)]) if len(gpus) else np.array([-1])
    return _picked(gpus, newest[origins])
