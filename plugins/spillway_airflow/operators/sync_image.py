"""Bring a run's image to the site that was chosen for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from spillway.codec import encode
from spillway.runs.holding import holding
from spillway.runs.staging import stage_image
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services


class SyncImageOperator(BaseOperator):
    """Mirror the image by digest to the registry of the run's open attempt; None where none is open."""

    template_fields: Sequence[str] = ("training_run",)

    def __init__(self, *, training_run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.training_run = training_run

    def execute(self, context: Context) -> Any:
        with typed_failures():
            services = worker_services()
            attempt = services.ledger.open_attempt(self.training_run)
            if attempt is None:
                return None
            with holding(services, attempt):
                return encode(stage_image(services, attempt, self.log.info))
