"""Wait until it is the turn of a run's window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context

from spillway.backfills import BACKFILL
from spillway.windows import begun_window
from spillway_airflow.failures import typed_failures
from spillway_airflow.parameters import refuse_unknown_parameters
from spillway_airflow.timetables import declared_iteration
from spillway_airflow.triggers.dag_run import DagRunTrigger


class WindowSensor(BaseOperator):
    """Deferred until no earlier run of the DAG is under way, where a backfill asked for this one; gives its window.

    Airflow starts up to ten runs of a backfill at once, whatever the DAG's own limit is: so they come in the order of
    their windows all the same. How an earlier run has ended is no matter here: a failed one is cleared, or repeated by
    another backfill, without those after it. Nor does a run wait that Airflow has not begun: asked for backwards, ten
    would wait for an eleventh for ever. Runs of the schedule wait for nobody here, and least for a backfill.
    """

    template_fields: Sequence[str] = ("poll_seconds",)

    def __init__(self, *, poll_seconds: float | str = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.poll_seconds = poll_seconds

    def execute(self, context: Context) -> dict[str, str]:
        """The window as ISO 8601 in UTC: ``starts_at``, ``ends_at``."""
        with typed_failures():
            refuse_unknown_parameters(context)
            run: Any = context["dag_run"]
            earlier = _earlier(context["ti"]) if run.run_type == BACKFILL else None
            if earlier is not None:
                told = "%s waits until %s has ended, which is %s: a backfill runs its months in their order"
                self.log.info(told, run.run_id, earlier.run_id, earlier.state.value)
                trigger = DagRunTrigger(dag_id=run.dag_id, run_id=earlier.run_id, poll_seconds=float(self.poll_seconds))
                self.defer(trigger=trigger, method_name="execute_again")
            starts_at, ends_at = run.data_interval_start, run.data_interval_end
            if starts_at is None:  # asked for over REST without a date
                window = begun_window(run.run_after, declared_iteration())
                starts_at, ends_at = window.starts_at, window.ends_at
        return {"starts_at": starts_at.isoformat(), "ends_at": ends_at.isoformat()}

    def execute_again(self, context: Context, event: dict[str, Any]) -> dict[str, str]:
        """The run that it waited for has ended; there may be another."""
        return self.execute(context)


def _earlier(ti: Any) -> Any:
    """The last earlier run of the DAG that is under way, or will be without regard to this one; None where none is.

    A run of the same backfill that Airflow has not begun is a later one in the order of whoever asked.
    """
    running = ti.get_previous_dagrun(state="running")
    if running is not None:
        return running
    queued = ti.get_previous_dagrun(state="queued")
    return None if queued is None or queued.run_type == BACKFILL else queued
