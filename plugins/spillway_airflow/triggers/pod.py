"""Watch the pod of one attempt until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from spillway.codec import encode
from spillway.runs.cancelling import cancel
from spillway.runs.watching import Watch
from spillway_airflow.hooks import triggerer_services
from spillway_airflow.threads import in_thread

TASK_ENDED = "its task was marked or cleared"
KILL_PATIENCE = timedelta(seconds=20)
"""Shorter than ``[triggerer] on_kill_timeout``; the pod's own grace goes on without us."""

_ENDING: set[asyncio.Future[None]] = set()
"""The event loop keeps only weak references to its tasks."""


class PodTrigger(BaseTrigger):
    """Fires once, when the attempt's pod has ended or is lost past its grace; shows the pod's log until then.

    A restarted triggerer begins to watch again and disturbs nothing. Only a person who marks or clears the deferred
    task ends the pod, with its grace.
    """

    def __init__(self, *, run: str, number: int, poll_seconds: float = 5.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.attempt_run, self.number, self.poll_seconds = run, number, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__name__}", {
            "run": self.attempt_run,
            "number": self.number,
            "poll_seconds": self.poll_seconds,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        services = await triggerer_services()
        attempt = await in_thread(services.ledger.attempt, self.attempt_run, self.number)
        watch = Watch(services=services, attempt=attempt)
        said = ""
        while True:
            look = await in_thread(watch.poll)
            for line in look.log_lines:
                self.log.info(line)
            if look.summary != said:
                said = look.summary
                self.log.info("attempt %d of %s: %s", self.number, self.attempt_run, said)
            if look.ended is not None:
                yield TriggerEvent({"run": self.attempt_run, "number": self.number, "ended": encode(look.ended)})
                return
            pause = look.pause.total_seconds() if look.pause else 0.0
            await asyncio.sleep(max(self.poll_seconds, pause))

    async def on_kill(self) -> None:
        """End the pod with its grace.

        Airflow cancels the trigger anew at each turn of its loop, a second apart, and this method with it; the work
        goes on in a task of its own.
        """
        ending = asyncio.ensure_future(self._end_pod())
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        await asyncio.shield(ending)

    async def _end_pod(self) -> None:
        services = await triggerer_services()
        await in_thread(cancel, services, self.attempt_run, TASK_ENDED, self.log.info, patience=KILL_PATIENCE)
