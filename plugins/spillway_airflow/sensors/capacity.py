"""Wait until a job fits somewhere, without reserving anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from spillway.codec import encode
from spillway.config import job_file, jobs_directory, load_job
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services
from spillway_airflow.triggers.capacity import CapacityTrigger


class CapacitySensor(BaseOperator):
    """Deferred until the job of a job file would be placed; gives the place, fails where there can never be one."""

    template_fields: Sequence[str] = ("job", "poll_seconds")

    def __init__(self, *, job: str, poll_seconds: float | str = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job, self.poll_seconds = job, poll_seconds

    def execute(self, context: Context) -> None:
        with typed_failures():
            job = load_job(job_file(jobs_directory(os.environ), self.job), worker_services().configuration.datasets)
        trigger = CapacityTrigger(job=encode(job), dag=self.dag_id, poll_seconds=float(self.poll_seconds))
        self.defer(trigger=trigger, method_name="found")

    def found(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Called when the answer is known."""
        if event["chosen"] is None:
            raise AirflowFailException(f"job '{self.job}' can never be placed; see the table of its place task")
        return dict(event["chosen"])
