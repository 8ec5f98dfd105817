"""Wait until a job fits somewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from spillway.codec import decode, encode
from spillway.model import JobSpec, PlacementDecision
from spillway.runs.admission import decide, snapshot
from spillway.runs.services import Services
from spillway_airflow.hooks import triggerer_services
from spillway_airflow.threads import in_thread


class CapacityTrigger(BaseTrigger):
    """Fires when the job would be placed now, or when it has become impossible. It reserves nothing."""

    def __init__(self, *, job: dict[str, Any], poll_seconds: float = 10.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job, self.poll_seconds = job, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__name__}", {"job": self.job, "poll_seconds": self.poll_seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        services = await triggerer_services()
        job = decode(JobSpec, self.job)
        while True:
            decision = await in_thread(_decide, services, job)
            if decision.chosen is not None or not decision.possible:
                yield TriggerEvent({"chosen": encode(decision.chosen)})
                return
            await asyncio.sleep(self.poll_seconds)


def _decide(services: Services, job: JobSpec) -> PlacementDecision:
    return decide(services, job, snapshot(services))
