"""Show what a run did and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from spillway.runs.evidence import evidence, timeline
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services


class SettleJobOperator(BaseOperator):
    """Log the run's timeline; gives its evidence: attempts, checkpoints, loss, placements, costs."""

    template_fields: Sequence[str] = ("training_run",)

    def __init__(self, *, training_run: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.training_run = training_run

    def execute(self, context: Context) -> dict[str, Any]:
        with typed_failures():
            found = evidence(worker_services(), self.training_run)
        self.log.info("%s", timeline(found))
        return {key: found[key] for key in ("attempts", "cost", "checkpoints", "unknown")}
