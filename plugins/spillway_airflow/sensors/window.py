"""Wait until it is the turn of a run's window."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType

from spillway.windows import begun_window
from spillway_airflow.failures import typed_failures
from spillway_airflow.parameters import refuse_unknown_parameters
from spillway_airflow.timetables import declared_iteration
from spillway_airflow.triggers.dag_run import UNFINISHED, DagRunTrigger

MOMENT = timedelta(microseconds=1)


class WindowSensor(BaseOperator):
    """Deferred until it is the turn of the run's window; gives the window. How a run before it has ended is no matter.

    A run of a backfill waits until no earlier run of the DAG is under way: Airflow starts up to ten of a backfill at
    once, whatever the DAG's own limit is. It does not wait for one of a backfill that Airflow has not begun: asked for
    backwards, ten would wait for an eleventh for ever. A run of the schedule waits for that of the window before, and
    for no backfill: the window of now comes first. A run by hand waits for nobody, and nobody but backfills for it.
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
            earlier = _awaited(run, context["ti"])
            if earlier is not None:
                self.log.info("%s waits until %s has ended: windows have their turn in order", run.run_id, earlier)
                trigger = DagRunTrigger(dag_id=run.dag_id, run_id=earlier, poll_seconds=float(self.poll_seconds))
                self.defer(trigger=trigger, method_name="execute_again")
            starts_at, ends_at = run.data_interval_start, run.data_interval_end
            if starts_at is None:  # asked for over REST without a date
                window = begun_window(run.run_after, declared_iteration())
                starts_at, ends_at = window.starts_at, window.ends_at
        return {"starts_at": starts_at.isoformat(), "ends_at": ends_at.isoformat()}

    def execute_again(self, context: Context, event: dict[str, Any]) -> dict[str, str]:
        """The run that it waited for has ended; there may be another."""
        return self.execute(context)


def _awaited(run: Any, ti: Any) -> str | None:
    """The run that this one waits for, by its id; None where it is its turn."""
    if run.run_type == DagRunType.BACKFILL_JOB:
        queued = ti.get_previous_dagrun(state=DagRunState.QUEUED.value)  # asked first: one that begins now is running
        running = ti.get_previous_dagrun(state=DagRunState.RUNNING.value)
        if running is not None:
            return str(running.run_id)
        return None if queued is None or queued.run_type == DagRunType.BACKFILL_JOB else str(queued.run_id)
    if run.run_type == DagRunType.SCHEDULED:
        before = begun_window(run.data_interval_start - MOMENT, declared_iteration())
        run_id = DagRunType.SCHEDULED.generate_run_id(suffix=before.starts_at.isoformat())
        return run_id if ti.get_dr_count(dag_id=run.dag_id, run_ids=[run_id], states=UNFINISHED) else None
    return None
