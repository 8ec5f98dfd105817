"""Who waits for a place looks again and again, without reserving anything: one of a process reads the facts for all."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from spillway.config import Configuration
from spillway.errors import SpillwayError
from spillway.model import JobSpec, PlacementDecision
from spillway.placement.context import Context, index
from spillway.placement.policy import choose
from spillway.runs.admission import known_core_images, snapshot
from spillway.runs.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The clusters and what is promised there."""

    context: Context
    core_images: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By the name of an image that was asked about."""

    def core_images_of(self, services: Services, job: JobSpec) -> Mapping[str, str]:
        if job.image not in self.core_images:
            self.core_images[job.image] = known_core_images(services, job)
        return self.core_images[job.image]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """What was found, from ``begun_at`` of the monotonic clock on, by that configuration; or why nothing was."""

    begun_at: float
    configuration: Configuration
    found: _Facts | SpillwayError


class Lookout:
    """What those who wait look at; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: _Reading | None = None

    def look(
        self,
        services: Services,
        job: JobSpec,
        *,
        run: str | None = None,
        dag: str | None = None,
        max_age: timedelta = timedelta(0),
    ) -> PlacementDecision:
        """What reserving would come to, without its table.

        Args:
            run: whose job it is; None where nobody has asked for it yet.
            dag: which DAG would ask for it then.
            max_age: how long before this look the facts may have been read.
        """
        facts = self._read(services, time.monotonic() - max_age.total_seconds())
        policy, now = services.configuration.policy, services.clock()
        core = facts.core_images_of(services, job)
        seen = dataclasses.replace(facts.context.snapshot, requester=dag, core_images=core)
        if run is not None and services.ledger.open_move(run) is not None:  # what it holds is the run's own
            return choose(job, index(services.ledger.complete(run, job, seen, policy, now), policy))
        return choose(job, facts.context.deciding(services.ledger.for_job(run, job, seen, policy, now)))

    def _read(self, services: Services, since: float) -> _Facts:
        """Facts of that moment or later; whoever comes while they are being read waits for them.

        Where they cannot be read all these are told so, and none of them tries again before it looks again.
        """
        known = self._newest
        if known is None or not _good(known, services, since):
            with self._lock:
                known = self._newest
                if known is None or not _good(known, services, since):
                    known = self._newest = _read(services)
        if isinstance(known.found, SpillwayError):
            raise known.found.with_traceback(None)  # it is raised again and again
        return known.found


def _good(reading: _Reading, services: Services, since: float) -> bool:
    return reading.begun_at >= since and reading.configuration == services.configuration


def _read(services: Services) -> _Reading:
    begun_at, policy = time.monotonic(), services.configuration.policy
    found: _Facts | SpillwayError
    try:
        seen = services.ledger.with_promises(snapshot(services), policy, services.clock())
        found = _Facts(context=index(seen, policy))
    except SpillwayError as problem:
        found = problem
    return _Reading(begun_at=begun_at, configuration=services.configuration, found=found)
