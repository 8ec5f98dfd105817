"""Who waits for a place looks again and again, without reserving anything: one of a process reads the facts for all."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from spillway.config import Configuration
from spillway.model import JobSpec, PlacementDecision
from spillway.placement.context import Context, index
from spillway.placement.policy import choose
from spillway.runs.admission import known_core_images, snapshot
from spillway.runs.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """The clusters and what is promised there, as they were read from ``begun_at`` of the monotonic clock on."""

    begun_at: float
    configuration: Configuration
    context: Context
    core_images: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By the name of an image that was asked about."""

    def core_images_of(self, services: Services, job: JobSpec) -> Mapping[str, str]:
        if job.image not in self.core_images:
            self.core_images[job.image] = known_core_images(services, job)
        return self.core_images[job.image]


class Lookout:
    """What those who wait look at; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: _Facts | None = None

    def look(
        self,
        services: Services,
        job: JobSpec,
        *,
        run: str | None = None,
        dag: str | None = None,
        since: float | None = None,
    ) -> PlacementDecision:
        """What reserving would come to, without its table.

        Args:
            run: whose job it is; None where nobody has asked for it yet.
            dag: which DAG would ask for it then.
            since: since when the facts must have been read, by the monotonic clock; since now where not said.
        """
        facts = self._read(services, time.monotonic() if since is None else since)
        policy, now = services.configuration.policy, services.clock()
        core = facts.core_images_of(services, job)
        seen = dataclasses.replace(facts.context.snapshot, requester=dag, core_images=core)
        if run is not None and services.ledger.open_move(run) is not None:  # what it holds is the run's own
            return choose(job, index(services.ledger.complete(run, job, seen, policy, now), policy))
        return choose(job, facts.context.deciding(services.ledger.for_job(run, job, seen, policy, now)))

    def _read(self, services: Services, since: float) -> _Facts:
        """Facts of that moment or later; whoever comes while they are being read waits for them."""
        known = self._facts
        if known is not None and _good(known, services, since):
            return known
        with self._lock:
            known = self._facts
            if known is None or not _good(known, services, since):
                known = self._facts = _facts(services)
            return known


def _good(facts: _Facts, services: Services, since: float) -> bool:
    return facts.begun_at >= since and facts.configuration == services.configuration


def _facts(services: Services) -> _Facts:
    begun_at = time.monotonic()
    policy = services.configuration.policy
    context = index(services.ledger.with_promises(snapshot(services), policy, services.clock()), policy)
    return _Facts(begun_at=begun_at, configuration=services.configuration, context=context)
