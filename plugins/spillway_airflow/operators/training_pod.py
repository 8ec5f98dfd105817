"""Carry a placed run out: launch, watch, and go on elsewhere from the newest checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import NEVER_EXPIRE, BaseOperator, Context  # type: ignore[attr-defined]  # not in its stub yet
from airflow.sdk.exceptions import AirflowFailException

from spillway.codec import decode, encode
from spillway.model import Attempt, Outcome, VerdictKind
from spillway.runs.cancelling import cancel
from spillway.runs.carrying import NOTHING_FITS
from spillway.runs.deadline import leave
from spillway.runs.engine import Finished, GivingWay, Watching, advance, conclude
from spillway.runs.services import Services
from spillway.runs.settling import Ended
from spillway_airflow.asking import Asking, asked_again, asking, ended_with_its_task
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.triggers.capacity import CapacityTrigger
from spillway_airflow.triggers.pod import TASK_ENDED, PodTrigger

ASKED = "asked"
WORKER_KILL_PATIENCE = timedelta(seconds=3)
"""Airflow kills a worker five seconds after it told it to end; the pod's own grace goes on without us."""


class TrainingPodOperator(BaseOperator):
    """Run the attempts of a run, one after the other, until one succeeds; gives the last attempt.

    Deferred while a pod runs or nothing fits. A pod that the platform takes away is followed by the next attempt
    inside the same try; Airflow's retries are for lost workers and outages and find the open attempt again. A program
    that fails ends the task at once, with its last log lines; whoever clears the task asks for the run anew.

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
            services = worker_services()
            attempts = services.ledger.attempts(self.training_run)
            return self._go_on(context, services, self._asked_after(context, services, attempts))

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """Called when the watched pod has ended, when its run is to leave it, or when something fits."""
        with typed_failures():
            services = worker_services()
            asked_after = self._asked_after(context, services, ())
            if "ended" in event:
                ended = decode(Ended, event["ended"])
                attempt = conclude(services, event["run"], event["number"], ended, self.log.info)
                self._keep_log(attempt, ended.log_tail)
            elif "move" in event:
                leave(services, services.ledger.move(event["run"], event["move"]), self.log.info)
            return self._go_on(context, services, asked_after)

    def _go_on(self, context: Context, services: Services, asked_after: int) -> Any:
        job = services.ledger.job(self.training_run)
        step = advance(services, self.training_run, job, self.log.info, asked_after=asked_after)
        if isinstance(step, Finished):
            if ended_with_its_task(step.attempt):
                # That was an earlier try, which was marked or cleared: its end reached the ledger after this one began.
                attempts = services.ledger.attempts(self.training_run)
                asked_after = self._asked_after(context, services, attempts)
                return self._go_on(context, services, asked_after)
            return self._finish(step.attempt)
        if isinstance(step, Watching):
            trigger = PodTrigger(
                run=self.training_run, number=step.attempt.number, poll_seconds=float(self.poll_seconds)
            )
            self.defer(trigger=trigger, method_name="resume")
        self.log.info(step.why if isinstance(step, GivingWay) else NOTHING_FITS)
        waiting = CapacityTrigger(job=encode(job), run=self.training_run, poll_seconds=float(self.poll_seconds))
        return self.defer(trigger=waiting, method_name="resume")

    def _keep_log(self, attempt: Attempt, lines: Sequence[str]) -> None:
        """Repeat the last lines of a pod that was lost or moved where they stay.

        The trigger of the next attempt writes to the same file of this try as the one that showed them, and Airflow
        begins that file anew. This log it appends to.
        """
        if attempt.outcome is not None and attempt.outcome.goes_on and lines:
            self.log.info("last lines of the log of attempt %d's pod:", attempt.number)
            for line in lines:
                self.log.info("  | %s", line)

    def _asked_after(self, context: Context, services: Services, attempts: Sequence[Attempt]) -> int:
        """What the asking that this try belongs to leaves behind; Airflow keeps it for the tries that follow."""
        kept = context["task_state_store"].get(ASKED)
        known = decode(Asking, kept) if kept else None
        now = asking(known, training_run=self.training_run, max_tries=context["ti"].max_tries, attempts=attempts)
        if now != known:
            if asked_again(known, now):  # before that is kept: a worker that is lost in between asks once more
                services.ledger.ask_again(self.training_run)
            context["task_state_store"].set(ASKED, encode(now), retention=NEVER_EXPIRE)
        return now.asked_after

    def _finish(self, attempt: Attempt) -> Any:
        if attempt.outcome is not Outcome.SUCCEEDED:
            raise AirflowFailException(f"run {attempt.run} is {attempt.outcome}: {attempt.reason}")
        return encode(attempt)

    def on_kill(self) -> None:
        """The task was ended while a worker carried it: its pod ends with its grace."""
        how, patience = VerdictKind.TASK_ENDED, WORKER_KILL_PATIENCE
        cancel(worker_services(), self.training_run, TASK_ENDED, self.log.info, kind=how, patience=patience)
