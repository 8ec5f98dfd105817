"""Watch the pod of one attempt until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from spillway.codec import encode
from spillway.model import Attempt, VerdictKind
from spillway.runs.cancelling import cancel
from spillway.runs.services import Services
from spillway.runs.watching import Look, Watch
from spillway_airflow.fresh_services import FreshServices
from spillway_airflow.hooks import triggerer_services
from spillway_airflow.threads import in_thread

TASK_ENDED = "its task was marked or cleared"
KILL_PATIENCE = timedelta(seconds=20)
"""Shorter than ``[triggerer] on_kill_timeout``; the pod's own grace goes on without us."""

_ENDING: set[asyncio.Future[None]] = set()
"""The event loop keeps only weak references to its tasks."""


class PodTrigger(BaseTrigger):
    """Fires once: when the attempt's pod has ended or is lost past its grace, or when its run is to leave its place.

    The latter is for a worker to bring about. Until then it shows the pod's log.

    A restarted triggerer begins to watch again, goes on with the log about where it was and disturbs nothing. Only a
    person who marks or clears the deferred task ends the pod, with its grace.

    Args:
        deferred_at: when its task was deferred, as ISO text; now where the task has just made the trigger.
    """

    def __init__(self, *, run: str, number: int, poll_seconds: float = 5.0, deferred_at: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.attempt_run, self.number, self.poll_seconds = run, number, poll_seconds
        self.deferred_at = deferred_at or datetime.now(UTC).isoformat()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{type(self).__module__}.{type(self).__name__}", {
            "run": self.attempt_run,
            "number": self.number,
            "poll_seconds": self.poll_seconds,
            "deferred_at": self.deferred_at,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        fresh = FreshServices(self.log)
        watch = await fresh.ask(self._begin)

        def poll(services: Services) -> Look:
            watch.services = services
            return watch.poll()

        said, alerted = "", None
        while True:
            look = await fresh.ask(poll)
            for line in look.log_lines:
                self.log.info(line)
            if look.alert not in {None, alerted}:
                self.log.error("attempt %d of %s: %s", self.number, self.attempt_run, look.alert)
            alerted = look.alert
            if look.summary != said:
                said = look.summary
                self.log.info("attempt %d of %s: %s", self.number, self.attempt_run, said)
            if look.ended is not None:
                yield TriggerEvent({"run": self.attempt_run, "number": self.number, "ended": encode(look.ended)})
                return
            if look.move is not None:
                yield TriggerEvent({"run": self.attempt_run, "move": look.move.number})
                return
            if look.unanswered:
                fresh.doubt()
            pause = look.pause.total_seconds() if look.pause else 0.0
            await asyncio.sleep(max(self.poll_seconds, pause))

    def _begin(self, services: Services) -> Watch:
        attempt = services.ledger.attempt(self.attempt_run, self.number)
        return Watch(services=services, attempt=attempt, logs_until=self._shown_until(services, attempt))

    def _shown_until(self, services: Services, attempt: Attempt) -> datetime | None:
        """Up to when this trigger has shown the log in an earlier triggerer; None where it begins.

        Every poll renews the lease, so the lease tells when the last one was. Its lines may not have been shown any
        more, and before it the cluster may have been silent for as long as a run is not handed over: that much is shown
        twice. Only what a pod with a grace above its job's wrote in a longer silence just before a restart is left out.
        """
        runs = services.configuration.runs
        last_poll = attempt.lease_expires_at - runs.lease
        if not datetime.fromisoformat(self.deferred_at) < last_poll < services.clock():
            return None  # nobody has polled yet, or the lease was given by another policy
        return last_poll - attempt.job.grace - runs.node_margin - timedelta(seconds=self.poll_seconds)

    async def on_kill(self) -> None:
        """End the pod with its grace."""
        await end_attempt(self.attempt_run, self.number, self.log)


async def end_attempt(run: str, number: int, log: Any) -> None:
    """End an attempt whose task was ended, its pod with its grace; for the ``on_kill`` of whatever waits for it.

    Airflow cancels the trigger anew at each turn of its loop, a second apart, and this with it; the work goes on in a
    task of its own, and tells its failure itself.
    """

    def tell_failure(ending: asyncio.Future[None]) -> None:
        _ENDING.discard(ending)
        if not ending.cancelled() and (problem := ending.exception()) is not None:
            told = f"attempt {number} of {run} could not be ended"
            log.error(f"{told}; unless its task goes on, the sweeper will: {problem}", exc_info=problem)

    async def end() -> None:
        services, kind = await triggerer_services(), VerdictKind.TASK_ENDED
        await in_thread(cancel, services, run, TASK_ENDED, log.info, kind=kind, number=number, patience=KILL_PATIENCE)

    ending = asyncio.ensure_future(end())
    _ENDING.add(ending)
    ending.add_done_callback(tell_failure)
    await asyncio.wait([ending])
