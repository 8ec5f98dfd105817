"""Carry a placed run out: launch, watch, and go on elsewhere from the newest checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from spillway.codec import decode, encode
from spillway.model import Attempt, Outcome
from spillway.runs.cancelling import cancel
from spillway.runs.engine import Finished, Watching, advance, conclude
from spillway.runs.services import Services
from spillway.runs.settling import Ended
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.triggers.capacity import CapacityTrigger
from spillway_airflow.triggers.pod import TASK_ENDED, PodTrigger

WORKER_KILL_PATIENCE = timedelta(seconds=3)
"""Airflow kills a worker five seconds after it told it to end; the pod's own grace goes on without us."""


class TrainingPodOperator(BaseOperator):
    """Run the attempts of a run, one after the other, until one succeeds; gives the last attempt.

    Deferred while a pod runs or nothing fits. A pod that the platform takes away is followed by the next attempt
    inside the same try; Airflow's retries are for lost workers only and find the open attempt again. A program that
    fails ends the task at once, with its last log lines.

    Args:
        training_run: the run, as ``PlaceJobOperator`` gives it.
        poll_seconds: how often the pod is looked at; 10 to 30 in an installation.
    """

    template_fields: Sequence[str] = ("training_run", "poll_seconds")

    def __init__(self, *, training_run: str, poll_seconds: float | str = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.training_run, self.poll_seconds = training_run, poll_seconds

    def execute(self, context: Context) -> Any:
        with typed_failures():
            return self._go_on(worker_services(), restart=True)

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """Called when the watched pod has ended or something fits."""
        with typed_failures():
            services = worker_services()
            restart = False
            if "ended" in event:
                ended = decode(Ended, event["ended"])
                attempt = conclude(services, event["run"], event["number"], ended, self.log.info)
                restart = attempt.outcome is Outcome.CANCELLED and attempt.reason == TASK_ENDED
            return self._go_on(services, restart=restart)

    def _go_on(self, services: Services, *, restart: bool) -> Any:
        job = services.ledger.job(self.training_run)
        step = advance(services, self.training_run, job, self.log.info, restart=restart)
        if isinstance(step, Finished):
            return self._finish(step.attempt)
        if isinstance(step, Watching):
            trigger = PodTrigger(
                run=self.training_run, number=step.attempt.number, poll_seconds=float(self.poll_seconds)
            )
            self.defer(trigger=trigger, method_name="resume")
        self.log.info("nothing fits now, waiting")
        waiting = CapacityTrigger(job=encode(job), poll_seconds=float(self.poll_seconds))
        return self.defer(trigger=waiting, method_name="resume")

    def _finish(self, attempt: Attempt) -> Any:
        if attempt.outcome is not Outcome.SUCCEEDED:
            raise AirflowFailException(f"run {attempt.run} is {attempt.outcome}: {attempt.reason}")
        return encode(attempt)

    def on_kill(self) -> None:
        """The task was ended while a worker carried it: its pod ends with its grace."""
        cancel(worker_services(), self.training_run, TASK_ENDED, self.log.info, patience=WORKER_KILL_PATIENCE)
