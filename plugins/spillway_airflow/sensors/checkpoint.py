"""Wait for a committed checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import SpillwayError
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services


class CheckpointSensor(BaseSensorOperator):
    """Done when the run has committed ``step`` or a later one at any site; gives the newest committed step."""

    template_fields: Sequence[str] = ("training_run", "step")

    def __init__(self, *, training_run: str, step: int | str = 1, mode: str = "reschedule", **kwargs: Any) -> None:
        super().__init__(mode=mode, **kwargs)
        self.training_run, self.step = training_run, step

    def poke(self, context: Context) -> PokeReturnValue:
        with typed_failures():
            services = worker_services()
            steps = []
            for name in services.configuration.clusters:
                try:
                    head = CheckpointStore(services.site(name).checkpoints, self.training_run).head()
                except SpillwayError as problem:
                    self.log.warning("%s is left out: %s", name, problem)
                    continue
                steps += [head.step] if head and head.step is not None else []
        newest = max(steps, default=None)
        self.log.info("newest committed step of %s: %s", self.training_run, newest)
        return PokeReturnValue(is_done=newest is not None and newest >= int(self.step), xcom_value=newest)
