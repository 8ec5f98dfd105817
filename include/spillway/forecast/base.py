"""What a forecast is made from, as arrays that are built once, and what makes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spillway.errors import InsufficientHistory
from spillway.model import DemandSeries, Forecast, JobRecord

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

GPU_CLASSES = (2, 4, 8, 16, 32)
"""Where classes of jobs begin, in GPUs: 1, 2-3, 4-7, 8-15, 16-31, 32 and more."""

DEPARTMENTS_APART = 20
"""So many departments, those with the most jobs, have statistics of their own; the others share theirs."""

LOOKS_BACK = 8 * 86_400.0
"""Seconds before an origin of which single jobs may count."""

_ROUNDING = 1e-6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(moment: datetime) -> float:
    """Seconds since 1970, UTC."""
    return (moment - _EPOCH).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobTable:
    """Jobs as columns, shape (n,), in the order in which they asked; moments in seconds since 1970.

    ``began`` is when it started, or asked where nobody wrote that down: its age counts from there. ``ended`` is
    infinite while it wants its GPUs. ``group`` is which of ``groups`` it is of: by class of GPUs and department, empty
    for all that share their statistics. ``since`` is when the first one asked: before that nobody recorded any.
    """

    submitted: Floats
    began: Floats
    ended: Floats
    gpus: Floats
    group: Integers
    groups: tuple[tuple[int, str], ...]
    since: float

    @classmethod
    def of(cls, records: Sequence[JobRecord]) -> JobTable:
        """Those that asked for GPUs, built once; a job that ended before it began is left out."""
        kept = sorted(
            (job for job in records if job.gpus > 0 and (job.ended_at is None or job.ended_at >= job.submitted_at)),
            key=lambda job: job.submitted_at,
        )
        names, departments = np.unique([job.department or "" for job in kept], return_inverse=True)
        return cls.of_columns(
            submitted=np.array([seconds(job.submitted_at) for job in kept], float),
            began=np.array([seconds(job.started_at or job.submitted_at) for job in kept], float),
            ended=np.array([np.inf if job.ended_at is None else seconds(job.ended_at) for job in kept], float),
            gpus=np.array([job.gpus for job in kept], float),
            departments=departments,
            names=names.tolist(),
        )

    @classmethod
    def of_columns(
        cls,
        *,
        submitted: Floats,
        began: Floats,
        ended: Floats,
        gpus: Floats,
        departments: Integers,
        names: Sequence[str],
    ) -> JobTable:
        """Jobs in the order in which they asked, ``departments`` as positions in ``names``, which rise strictly."""
        some = _apart(departments, names)
        kind = np.searchsorted(GPU_CLASSES, gpus, side="right") * (len(names) + 1) + some
        there = np.bincount(kind) > 0
        keys, group = np.flatnonzero(there), (np.cumsum(there) - 1)[kind]
        called = ("", *names)
        return cls(
            submitted=submitted,
            began=began,
            ended=ended,
            gpus=gpus,
            group=group,
            groups=tuple((key // len(called), called[key % len(called)]) for key in keys.tolist()),
            since=float(submitted[0]) if len(submitted) else np.inf,
        )

    def known_at(self, moment: float) -> JobTable:
        """What was known of them then: the later ones are not there, and what ended later runs."""
        known = self._only(slice(int(np.searchsorted(self.submitted, moment))))
        return replace(known, ended=np.where(known.ended > moment, np.inf, known.ended))

    def wanting_after(self, moment: float) -> JobTable:
        """Those that had not ended then."""
        return self._only(self.ended > moment)

    def _only(self, which: slice | NDArray[np.bool_]) -> JobTable:
        return replace(
            self,
            submitted=self.submitted[which],
            began=self.began[which],
            ended=self.ended[which],
            gpus=self.gpus[which],
            group=self.group[which],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """GPUs wanted, shape (t,), the mean of each step, the last of which ends now; NaN where nobody measured.

    ``jobs`` are None where only samples are known. Origin ``i`` is the moment before step ``i``; the last one is now.
    ``time_zone`` is whose clocks people work by.
    """

    ends_at: datetime
    step: timedelta
    gpus: Floats
    jobs: JobTable | None = None
    time_zone: str = "UTC"

    @classmethod
    def of(cls, series: DemandSeries, records: Sequence[JobRecord] = (), *, time_zone: str = "UTC") -> History:
        """The series with the jobs behind it, as far as they were known when it ended.

        What cannot be a number of GPUs was not measured: no number, an infinite one, one below 0.
        """
        ends_at = (series.starts_at + len(series.gpus) * series.step).astimezone(UTC)
        gpus = np.array([np.nan if value is None else value for value in series.gpus], float)
        return cls(
            ends_at=ends_at,
            step=series.step,
            gpus=np.where((gpus >= 0) & np.isfinite(gpus), gpus, np.nan),
            jobs=JobTable.of(records).known_at(seconds(ends_at)) if records else None,
            time_zone=time_zone,
        )

    @property
    def present(self) -> int:
        """The origin that is now."""
        return len(self.gpus)

    @property
    def coverage(self) -> float:
        """The part of it that was measured, in [0, 1]."""
        return float(np.isfinite(self.gpus).mean()) if self.present else 0.0

    def steps(self, lasting: timedelta) -> int:
        """How many steps that is; at least one."""
        return max(1, round(lasting / self.step))

    def ahead(self, steps: int) -> str:
        """How far ahead so many steps are, for a person."""
        minutes = round(steps * self.step / timedelta(minutes=1))
        return f"{minutes} min ahead" if minutes % 60 else f"{minutes // 60} h ahead"

    def at(self, origin: int) -> datetime:
        return self.ends_at - (self.present - origin) * self.step

    def moments(self, origins: Integers) -> Floats:
        """Seconds since 1970 of each."""
        return np.asarray(seconds(self.ends_at) - (self.present - origins) * self.step.total_seconds(), np.float64)

    def until(self, origin: int) -> History:
        """The history as it was known then."""
        ends_at = self.at(origin)
        jobs = None if self.jobs is None else self.jobs.known_at(seconds(ends_at))
        return replace(self, ends_at=ends_at, gpus=self.gpus[:origin], jobs=jobs)

    def lately(self, first: int) -> History:
        """The same with only those jobs that the first origin and later ones look at."""
        if self.jobs is None:
            return self
        return replace(self, jobs=self.jobs.wanting_after(seconds(self.at(first)) - LOOKS_BACK))

    def require_measured(self) -> None:
        """Raises InsufficientHistory where nobody ever measured or asked for anything: unknown is not zero."""
        if not np.isfinite(self.gpus).any() and not (self.jobs is not None and len(self.jobs.gpus)):
            raise InsufficientHistory(self.present)


class Forecaster(Protocol):
    """Whatever makes forecasts: what was learned, if anything, is in it; the state of now is in the history."""

    def predict(self, history: History, horizon: int, quantiles: Sequence[float]) -> Forecast:
        """GPUs wanted at each of ``horizon`` steps after the history's end.

        Raises:
            InsufficientHistory: nothing was ever measured.
        """
        ...


def rounded(history: History, wanted: Floats, quantiles: Sequence[float], *, model: str, reason: str = "") -> Forecast:
    """The forecast of GPUs of shape (steps, quantiles): rising in each row, whole GPUs, none below 0."""
    rising = np.maximum.accumulate(np.maximum(wanted, 0.0), axis=1)
    return Forecast(
        made_at=history.ends_at,
        step=history.step,
        quantiles=tuple(quantiles),
        gpus=tuple(tuple(ceil(value - _ROUNDING) for value in row) for row in rising.tolist()),
        model=model,
        reason=reason,
        coverage=history.coverage,
    )


def _apart(departments: Integers, names: Sequence[str]) -> Integers:
    """Where each one's name is, counted from 1; 0 for those with few jobs, and for jobs of none."""
    counts = np.bincount(departments, minlength=len(names))
    most = [at for at in np.argsort(-counts, kind="stable").tolist() if names[at] and counts[at]][:DEPARTMENTS_APART]
    place = np.zeros(len(names), np.int64)
    place[most] = np.array(most, np.int64) + 1
    found: Integers = place[departments]
    return found
