"""Decide where a job runs and reserve the place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from spillway.codec import encode
from spillway.config import job_file, jobs_directory, load_job
from spillway.model import PlacementDecision
from spillway.runs.engine import place_run
from spillway.runs.explaining import newest, placing, told
from spillway.runs.identity import open_generation
from spillway.runs.planning import plan
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.parameters import refuse_unknown_parameters
from spillway_airflow.triggers.capacity import CapacityTrigger


class PlaceJobOperator(BaseOperator):
    """Place the job of a job file; gives the run, the attempt's place and the whole decision.

    Waits (deferred) while nothing fits now, fails at once when nothing ever can. Executed again after its run has
    ended, it opens a new run: that is how a whole pipeline is run again on purpose.

    Args:
        job: name of a job file (``digits`` or ``digits.yaml``) in the jobs directory.
        dry_run_only: show the decision and what would be moved, change nothing, skip what follows.
    """

    template_fields: Sequence[str] = ("job", "dry_run_only", "poll_seconds")

    def __init__(
        self, *, job: str, dry_run_only: bool | str = False, poll_seconds: float | str = 10.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.job, self.dry_run_only, self.poll_seconds = job, dry_run_only, poll_seconds

    def execute(self, context: Context) -> dict[str, Any]:
        return self._place(context, waited_for=None)

    def _place(self, context: Context, *, waited_for: str | None) -> dict[str, Any]:
        with typed_failures():
            refuse_unknown_parameters(context)
            services = worker_services()
            job = load_job(job_file(jobs_directory(os.environ), self.job), services.configuration.datasets)
            if str(self.dry_run_only).lower() == "true":
                self.log.info("%s", plan(services, job, dag=self.dag_id).text)
                raise AirflowSkipException("dry run: nothing was reserved, moved or started")
            ti = context["ti"]
            origin = {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}
            run = open_generation(services, job, origin, waited_for=waited_for)
            placed = place_run(services, run, job, self.log.info)
        if isinstance(placed, PlacementDecision):
            self.log.info("nothing fits now, waiting\n%s", told(newest(services.ledger, run)))
            self.defer(
                trigger=CapacityTrigger(job=encode(job), run=run, poll_seconds=float(self.poll_seconds)),
                method_name="execute_again",
            )
        return {
            "run": run,
            "attempt": placed.number,
            "candidate": encode(placed.candidate),
            "decision": encode(placing(services.ledger, placed).decision),
        }

    def execute_again(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Something has changed: decide anew."""
        return self._place(context, waited_for=event.get("run"))
