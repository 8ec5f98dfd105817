"""Wait until a job fits somewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from spillway.codec import decode, encode
from spillway.model import Candidate, JobSpec, PlacementDecision
from spillway.runs.displacing import awaited, waits_for
from spillway.runs.looking import Lookout
from spillway.runs.services import Services
from spillway_airflow.fresh_services import FreshServices
from spillway_airflow.triggers.pod import end_attempt

_LOOKOUT = Lookout()
"""All who wait in this process look at the same facts."""


class CapacityTrigger(BaseTrigger):
    """Fires when the job would be placed now, when it has become impossible, or when its run was cancelled.

    Of a run that has a place already it waits for those that give way to it. It reserves nothing.

    Args:
        run: whose job waits; None for a job that nobody has asked for yet.
        dag: which DAG would ask for it then.
    """

    def __init__(
        self, *, job: dict[str, Any], run: str | None = None, dag: str | None = None, poll_seconds: float = 10.0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job, self.of_run, self.dag, self.poll_seconds = job, run, dag, poll_seconds
        self._waits_with: int | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__name__}", {
            "job": self.job,
            "run": self.of_run,
            "dag": self.dag,
            "poll_seconds": self.poll_seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        fresh = FreshServices(self.log)
        job, said, max_age = decode(JobSpec, self.job), "", timedelta(0)
        while True:
            if self.of_run is not None and await fresh.ask(self._cancelled):
                yield TriggerEvent({"run": self.of_run, "chosen": None})
                return
            if self.of_run is not None and (why := await fresh.ask(self._awaited)):
                if why != said:
                    self.log.info(said := why)
                await asyncio.sleep(self.poll_seconds)
                continue
            chosen = None if self.of_run is None else await fresh.ask(self._place)
            if chosen is not None:
                yield TriggerEvent({"run": self.of_run, "chosen": encode(chosen)})
                return
            found = await fresh.ask(partial(self._look, job=job, max_age=max_age), waits=True)
            if found.chosen is not None or not found.possible:
                yield TriggerEvent({"run": self.of_run, "chosen": encode(found.chosen)})
                return
            if found.unreachable:
                fresh.doubt()
            await asyncio.sleep(self.poll_seconds)
            max_age = timedelta(seconds=self.poll_seconds / 2)

    def _cancelled(self, services: Services) -> bool:
        return services.ledger.cancel_reason(str(self.of_run)) is not None

    def _place(self, services: Services) -> Candidate | None:
        """That of the run's open attempt."""
        attempt = services.ledger.open_attempt(str(self.of_run))
        return None if attempt is None else attempt.candidate

    def _awaited(self, services: Services) -> str:
        """Who gives way to the run and has not ended yet, in words; empty where nobody."""
        attempt = services.ledger.open_attempt(str(self.of_run))
        others = awaited(services, attempt) if attempt is not None else ()
        self._waits_with = attempt.number if attempt is not None and others else None
        return waits_for(attempt, others) if attempt is not None and others else ""

    async def on_kill(self) -> None:
        """Give up the attempt that others make room for; who was not asked to end yet trains on."""
        if self._waits_with is not None:
            await end_attempt(str(self.of_run), self._waits_with, self.log)

    def _look(self, services: Services, *, job: JobSpec, max_age: timedelta) -> PlacementDecision:
        """What is to be had; keeps the run's place in the queue, and moves it to where it lacks only room now."""
        found = _LOOKOUT.look(services, job, run=self.of_run, dag=self.dag, max_age=max_age)
        if self.of_run is not None and found.chosen is None and found.possible:
            places, unseen = found.queues_at, found.unreachable
            services.ledger.still_waits(self.of_run, job, places, services.clock(), unseen=unseen)
        return found
