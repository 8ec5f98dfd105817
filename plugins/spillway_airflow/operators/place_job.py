"""Decide where a job runs and reserve the place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow.sdk import BaseOperator, BaseXCom, Context, SkipMixin
from airflow.sdk.exceptions import AirflowSkipException

from spillway.backfills import RUN_TYPE, placed_as
from spillway.codec import encode
from spillway.config import job_file, jobs_directory, load_job
from spillway.model import Attempt, PlacementDecision
from spillway.runs.engine import place_run
from spillway.runs.explaining import newest, placing, told
from spillway.runs.identity import open_generation
from spillway.runs.planning import plan
from spillway.runs.services import Services
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.link_pool import run_tasks
from spillway_airflow.operators.staging import StagingOperator, unneeded
from spillway_airflow.parameters import refuse_unknown_parameters
from spillway_airflow.triggers.capacity import CapacityTrigger


class PlaceJobOperator(BaseOperator, SkipMixin):
    """Place the job of a job file; gives the run, the attempt's place and the whole decision.

    Waits (deferred) while nothing fits now, fails at once when nothing ever can. Executed again after its run has
    ended, it opens a new run: that is how a whole pipeline is run again on purpose.

    Of several tasks that bring the same to the place, each in the pool of one link, it skips those that nothing goes
    through: they would wait in a pool for nothing.

    Args:
        job: name of a job file (``digits`` or ``digits.yaml``) in the jobs directory.
        dry_run_only: show the decision and what would be moved, change nothing, skip what follows.
        environment: variables for the job's program beside those of the job file.
    """

    inherits_from_skipmixin = True
    template_fields: Sequence[str] = ("job", "dry_run_only", "poll_seconds", "environment")

    def __init__(
        self,
        *,
        job: str,
        dry_run_only: bool | str = False,
        poll_seconds: float | str = 10.0,
        environment: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.job, self.dry_run_only, self.poll_seconds = job, dry_run_only, poll_seconds
        self.environment = dict(environment or {})

    def execute(self, context: Context) -> dict[str, Any]:
        return self._place(context, waited_for=None)

    def _place(self, context: Context, *, waited_for: str | None) -> dict[str, Any]:
        with typed_failures():
            refuse_unknown_parameters(context)
            services = worker_services()
            job = load_job(job_file(jobs_directory(os.environ), self.job), services.configuration.datasets)
            job = replace(job, environment={**job.environment, **self.environment})
            ti = context["ti"]
            origin = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}
            origin[RUN_TYPE] = context["dag_run"].run_type.value
            if str(self.dry_run_only).lower() == "true":
                self.log.info("%s", plan(services, placed_as(job, origin), dag=self.dag_id).text)
                raise AirflowSkipException("dry run: nothing was reserved, moved or started")
            run = open_generation(services, job, origin, waited_for=waited_for)
            asked, job = job, services.ledger.job(run)
            if job.priority is not asked.priority:
                self.log.info("a backfill asks for it, so it is placed as %s, not as %s", job.priority, asked.priority)
            placed = place_run(services, run, job, self.log.info)
            if isinstance(placed, PlacementDecision):
                self.log.info("nothing fits now, waiting\n%s", told(newest(services.ledger, run)))
                self.defer(
                    trigger=CapacityTrigger(job=encode(job), run=run, poll_seconds=float(self.poll_seconds)),
                    method_name="execute_again",
                )
            found = {
                "run": run,
                "attempt": placed.number,
                "candidate": encode(placed.candidate),
                "decision": encode(placing(services.ledger, placed).decision),
            }
            skipped = self._unneeded(ti, services, placed)
        if skipped:
            # Airflow takes no result of a task that skips others: it is told by an exception.
            ti.xcom_push(key=BaseXCom.XCOM_RETURN_KEY, value=found)
            self.skip(ti, skipped)
        return found

    def _unneeded(self, ti: Any, services: Services, placed: Attempt) -> list[StagingOperator]:
        """The tasks that would wait in the pool of a link that the place does not use."""
        tasks = [task for task in self.downstream_list if isinstance(task, StagingOperator)]
        if all(task.link is None for task in tasks):
            return []
        return unneeded(tasks, run_tasks(ti), services, placed)

    def execute_again(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Something has changed: decide anew."""
        return self._place(context, waited_for=event.get("run"))
