"""How long jobs go on, from those of the past: running jobs by their age, and jobs that have not yet been asked for.

Hazards are constant between ages on a logarithmic scale, by class of GPUs and department: the events there, beside
``PRIOR`` events of what the class, and before it all jobs, show at that age. So a group of few jobs says little of its
own, and an age that none of it has reached is judged by the others. Jobs that still run count for the time that they
have run.

Source: Kaplan & Meier, Nonparametric estimation from incomplete observations, JASA 53, 1958; the shrinkage is the
mean of a gamma prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from spillway.forecast.base import GPU_CLASSES, Floats, History, Integers, JobTable

PRIOR = 5.0
RATE_DAYS = ((1, 0), (3, 0), (7, 0), (7, 6))
"""Between how many days ago jobs that were asked for are counted; the mean of these rates is what is expected.

The last one is the day that followed a week ago: it has the weekday of the coming one.
"""

_DAY = 86_400.0
_EDGES = np.concatenate([[0.0], np.geomspace(60.0, 60 * _DAY, 80)])
_MIDDLES = np.concatenate([[0.3 * _EDGES[1]], np.sqrt(_EDGES[1:-1] * _EDGES[2:])])
_AGES = len(_MIDDLES)
_WITHIN = (0.1, 0.5, 0.9)
_LEAST_HAZARD = 1e-8
_CLASSES = len(GPU_CLASSES) + 1
_INTEGRATED = 40


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curves:
    """What was known at some moments, (c,), rising: an origin goes by the newest that is not after it.

    ``hazards`` are those between the ages, ``cumulated`` those until each age, both (c * rows, ages). There is a row
    for each of ``groups``, and then one for each class of GPUs, for groups that were not known.
    """

    moments: Floats
    groups: tuple[tuple[int, str], ...]
    hazards: Floats
    cumulated: Floats

    @property
    def newest(self) -> Curves:
        """What was known at last."""
        last = slice(-self.rows, None)
        return replace(self, moments=self.moments[-1:], hazards=self.hazards[last], cumulated=self.cumulated[last])

    @property
    def rows(self) -> int:
        """So many at each moment."""
        return len(self.groups) + _CLASSES

    def rows_of(self, jobs: JobTable) -> Integers:
        """The row of each group of a table, which may have others."""
        known = {group: row for row, group in enumerate(self.groups)}
        return np.array([known.get(group, len(known) + group[0]) for group in jobs.groups], np.int64)

    def before(self, moments: Floats) -> Integers:
        """Which of them each moment goes by."""
        return np.maximum(np.searchsorted(self.moments, moments, side="right") - 1, 0)

    def until(self, row: Integers, age: Floats) -> Floats:
        """The hazard that a job has gone through at that age, by the row of its curve."""
        band = _band(age)
        found: Floats = self.cumulated[row, band] + self.hazards[row, band] * (age - _EDGES[band])
        return found

    def lasting(self, row: Integers, age: Floats, step_seconds: float, steps: Integers) -> Floats:
        """The probability that a job of that age goes on, in the mean of each step: (rows, steps)."""
        within = (steps[None, :] - 1 + np.array(_WITHIN)[:, None]) * step_seconds
        later = self.until(row[:, None, None], age[:, None, None] + within[None, :, :])
        found: Floats = np.exp(self.until(row, age)[:, None, None] - later).mean(axis=1)
        return found

    def from_start(self, step_seconds: float, steps: Integers) -> Floats:
        """Seconds that a job which may come at any moment is there in the middle of a step: (c, rows, steps)."""
        until = (steps - 0.5) * step_seconds
        after = until[None, :] * ((np.arange(_INTEGRATED) + 0.5) / _INTEGRATED)[:, None]
        rows = np.arange(len(self.hazards))
        found: Floats = np.exp(-self.until(rows[:, None, None], after[None, :, :])).mean(axis=1) * until
        return found.reshape(len(self.moments), -1, len(steps))


def curves(jobs: JobTable, moments: Floats) -> Curves:
    """What was known at those moments, rising."""
    shape = (len(moments), len(jobs.groups), _AGES)
    over = jobs.ended <= moments[-1]
    age = np.maximum(jobs.ended[over] - jobs.began[over], 0.0)
    known_from = np.searchsorted(moments, jobs.ended[over])
    ended, lived = (np.cumsum(part, axis=0) for part in _counted(known_from, jobs.group[over], age, shape))
    at, job = _wanting(jobs, moments)
    age = np.maximum(moments[at] - jobs.began[job], 0.0)
    running, lived_so_far = _counted(at, jobs.group[job], age, shape)
    exposed = lived + lived_so_far + _passed(ended + running)
    classes = np.array([kind for kind, _ in jobs.groups], np.int64)
    alike = (classes[:, None] == np.arange(_CLASSES)[None, :]).astype(float)
    everybody = np.maximum(ended.sum(axis=1) / np.maximum(exposed.sum(axis=1), 1.0), _LEAST_HAZARD)[:, None, :]
    by_class = (alike.T @ ended + PRIOR) / (alike.T @ exposed + PRIOR / everybody)
    by_group = (ended + PRIOR) / (exposed + PRIOR / (alike @ by_class))
    hazards = np.concatenate([by_group, by_class], axis=1).reshape(-1, _AGES)
    through = hazards * np.diff(_EDGES)
    return Curves(moments=moments, groups=jobs.groups, hazards=hazards, cumulated=np.cumsum(through, axis=1) - through)


def staying(history: History, origins: Integers, steps: Integers, known: Curves) -> Floats:
    """GPUs that the jobs of an origin are expected still to want, (origins, steps)."""
    jobs = history.jobs
    if jobs is None:
        return np.full((len(origins), len(steps)), np.nan)
    moments = history.moments(origins)
    origin, job = _wanting(jobs, moments)
    # Jobs of a group that are about as old have the same prospects.
    row = known.before(moments)[origin] * known.rows + known.rows_of(jobs)[jobs.group[job]]
    cell = row * _AGES + _band(np.maximum(moments[origin] - jobs.began[job], 0.0))
    there = np.bincount(cell, minlength=known.hazards.size) > 0
    cells, which = np.flatnonzero(there), (np.cumsum(there) - 1)[cell]
    each = known.lasting(cells // _AGES, _MIDDLES[cells % _AGES], history.step.total_seconds(), steps)
    wanted = each[which] * jobs.gpus[job][:, None]
    found = [np.bincount(origin, weights=column, minlength=len(origins)) for column in wanted.T]
    return np.stack(found, axis=1)


def arriving(history: History, origins: Integers, steps: Integers, known: Curves) -> Floats:
    """GPUs that jobs which are asked for after an origin are expected to want, (origins, steps)."""
    jobs = history.jobs
    if jobs is None or not len(jobs.submitted):
        return np.full((len(origins), len(steps)), np.nan)
    groups, moments = len(jobs.groups), history.moments(origins)
    edges = np.unique(np.stack([moments - days * _DAY for window in RATE_DAYS for days in window]))
    # GPUs that were asked for before each of the edges, by group.
    cell = np.searchsorted(edges, jobs.submitted, side="right")
    table = np.bincount(cell * groups + jobs.group, weights=jobs.gpus, minlength=(len(edges) + 1) * groups)
    before = np.cumsum(table.reshape(-1, groups)[: len(edges)], axis=0)
    rates, windows = np.zeros((len(origins), groups)), np.zeros(len(origins))
    for since, until in RATE_DAYS:
        first, last = moments - since * _DAY, moments - until * _DAY
        lasting = last - np.maximum(first, jobs.since)
        asked = before[np.searchsorted(edges, last)] - before[np.searchsorted(edges, first)]
        recorded = lasting >= history.step.total_seconds()
        rates += np.where(recorded[:, None], asked / np.maximum(lasting, 1.0)[:, None], 0.0)
        windows += recorded
    each = known.from_start(history.step.total_seconds(), steps)
    each = np.take(each, known.rows_of(jobs), axis=1)[known.before(moments)]
    expected = (rates / np.maximum(windows, 1.0)[:, None])[:, None, :] @ each
    return np.asarray(expected[:, 0, :], np.float64)


def _wanting(jobs: JobTable, moments: Floats) -> tuple[Integers, Integers]:
    """Every pair of a moment, rising, and a job that wants its GPUs then: which moment, which job."""
    first = np.searchsorted(moments, jobs.submitted, side="right")
    count = np.maximum(np.searchsorted(moments, jobs.ended, side="left") - first, 0)
    job = np.repeat(np.arange(len(count)), count)
    moment = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return moment, job


def _counted(at: Integers, group: Integers, age: Floats, shape: tuple[int, int, int]) -> tuple[Floats, Floats]:
    """Jobs, and what they lived of the ages that they are in, both of the shape (moments, groups, ages)."""
    band, size = _band(age), shape[0] * shape[1] * shape[2]
    cell = (at * shape[1] + group) * shape[2] + band
    jobs = np.bincount(cell, minlength=size).astype(float)
    lived = np.bincount(cell, weights=age - _EDGES[band], minlength=size)
    return jobs.reshape(shape), np.asarray(lived.reshape(shape), np.float64)


def _passed(jobs: Floats) -> Floats:
    """Seconds that jobs lived in the ages which they have left behind."""
    older: Floats = np.cumsum(jobs[..., ::-1], axis=-1)[..., ::-1] - jobs
    return older * np.diff(_EDGES)


def _band(age: Floats) -> Integers:
    """Between which two ages that is; what is older than all of them is in the last one."""
    return np.minimum(np.searchsorted(_EDGES, age, side="right") - 1, _AGES - 1)
