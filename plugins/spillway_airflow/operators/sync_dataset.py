"""Bring what a run reads to the site that was chosen for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from spillway.runs.holding import holding
from spillway.runs.staging import stage_datasets
from spillway.sync.report import summary
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services


class SyncDatasetOperator(BaseOperator):
    """Copy what is new or changed to the store of the run's open attempt; gives the counts of each report."""

    template_fields: Sequence[str] = ("training_run",)

    def __init__(self, *, training_run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.training_run = training_run

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with typed_failures():
            services = worker_services()
            attempt = services.ledger.open_attempt(self.training_run)
            if attempt is None:
                return []
            target = attempt.candidate.cluster
            with holding(services, attempt):
                reports = stage_datasets(services, attempt.job, target, self.log.info, run=attempt.run)
            return [{"cluster": target, **summary(report)} for report in reports]
