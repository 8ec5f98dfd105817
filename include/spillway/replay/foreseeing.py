"""Forecasts in a replay: by the live forecaster, of what has happened in the replay so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from spillway.forecast.base import LOOKS_BACK, Floats, History, Integers, JobTable, seconds
from spillway.forecast.choosing import Fitted
from spillway.forecast.series import HOUR, demand_series
from spillway.model import Forecast, JobRecord
from spillway.replay.jobs import Job
from spillway.scaling.ahead import EVERYWHERE
from spillway.scaling.foresight import LOOKED_AT, foreseen_by, learned
from spillway.scaling.rules import ForecastRule

LEARNED_EVERY = timedelta(days=1)
"""Live it is learned at every look, from the same hours. It changes little in a day, and takes most of the time."""


class Foreseeing:
    """What is foreseen at each hour, from the jobs that were asked for before it, and from nothing that came later.

    The demand of an hour is what those that waited or ran wanted, as samples measure it.
    """

    def __init__(self, rule: ForecastRule, records: Sequence[JobRecord], *, time_zone: str) -> None:
        self.rule, self.time_zone = rule, time_zone
        self._epoch = seconds(records[0].submitted_at)
        self._names, self._departments = np.unique([job.department or "" for job in records], return_inverse=True)
        self._submitted = np.array([seconds(job.submitted_at) for job in records])
        self._gpus = np.zeros(len(records))
        self._began = self._submitted.copy()
        self._ended = np.full(len(records), np.inf)
        self._asked = np.zeros(len(records), dtype=bool)
        self._open: list[Job] = []
        self._starts_at = self._ends_at = _whole_hour(self._epoch, up=True)
        self._hours: list[float] = []
        self._known: Fitted | None = None
        self._learned_at = 0.0
        self._forecasts: Mapping[tuple[str, str], Forecast] = {}

    def asked(self, job: Job) -> None:
        """It waits or runs from now on."""
        self._asked[job.index], self._gpus[job.index] = True, job.gpus
        self._open.append(job)

    def at(self, now: float) -> Mapping[tuple[str, str], Forecast]:
        """What is foreseen; it changes with every whole hour. Nothing where too little is known."""
        hour = _whole_hour(self._epoch + now)
        if hour > self._ends_at:
            self._measure(hour)
            forecast = self._made()
            self._forecasts = {} if forecast is None else {EVERYWHERE: forecast}
        return self._forecasts

    def changes_after(self, now: float) -> float:
        """When something else is foreseen next: with the next hour, or the next one that the rule reaches into."""
        reached = -self.rule.ahead.total_seconds() % HOUR.total_seconds()
        hour = _whole_hour(self._epoch + now) - self._epoch
        return next(at for at in (hour + reached, hour + HOUR.total_seconds()) if at > now)

    def _measure(self, until: float) -> None:
        """The hours that have passed since the last one that was measured."""
        which = np.array([job.index for job in self._open], dtype=np.int64)
        for job in self._open:
            if job.started_at is not None:
                self._began[job.index] = self._epoch + job.started_at
            if job.ended_at is not None:
                self._ended[job.index] = self._epoch + job.ended_at
        self._open = [job for job in self._open if job.ended_at is None or self._epoch + job.ended_at > until]
        which.sort()
        starts_at, ends_at = (datetime.fromtimestamp(at, UTC) for at in (self._ends_at, until))
        self._hours += (value or 0.0 for value in demand_series(self._jobs(which, until), starts_at, ends_at).gpus)
        self._ends_at = until

    def _made(self) -> Forecast | None:
        hours = self._hours[-(LOOKED_AT // HOUR) :]
        learn = self._known is None or self._ends_at - self._learned_at >= LEARNED_EVERY.total_seconds()
        looked_at = len(hours) * HOUR.total_seconds() if learn else 0.0
        since = self._ends_at - looked_at - LOOKS_BACK
        which = np.flatnonzero(self._asked & (self._submitted < self._ends_at) & (self._ended > since))
        history = History(
            ends_at=datetime.fromtimestamp(self._ends_at, UTC),
            step=HOUR,
            gpus=np.array(hours),
            jobs=self._jobs(which, self._ends_at),
            time_zone=self.time_zone,
        )
        if learn:
            self._known, self._learned_at = learned(self.rule, history), self._ends_at
        return foreseen_by(self.rule, history, self._known)

    def _jobs(self, which: Integers, now: float) -> JobTable:
        """Those jobs as they were known then."""
        ended: Floats = self._ended[which]
        return JobTable.of_columns(
            submitted=self._submitted[which],
            began=self._began[which],
            ended=np.where(ended > now, np.inf, ended),
            gpus=self._gpus[which],
            departments=self._departments[which],
            names=self._names.tolist(),
        )


def _whole_hour(moment: float, *, up: bool = False) -> float:
    """The one before it; with ``up`` the one after it; in seconds since 1970."""
    hour = HOUR.total_seconds()
    return -(-moment // hour) * hour if up else moment // hour * hour
