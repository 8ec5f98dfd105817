"""### Train once a month, in its last week

The pipeline of `train` for the window that `iteration` in `policy.yaml` declares: the last seven days of each month, or
its last ISO week, by the clocks of a zone. The window is the run's data interval, and the program finds it in
`SPILLWAY_WINDOW_START` and `SPILLWAY_WINDOW_END`.

* **Scheduled**: a run starts with its window, once that of the window before has ended.
* **Past months**: `airflow backfill create --dag-id monthly_iteration --from-date 2026-01-01 --to-date 2026-06-30` runs
  them in their order: the task `window` waits, without a slot, until the run before has ended, and its log names that.
* A backfill's job has the lowest priority and orders no nodes, unless its file says `backfill_orders_nodes: true`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import dag

from spillway_airflow.heads import training_parameters
from spillway_airflow.sensors.window import WindowSensor
from spillway_airflow.timetables import LastWeekOfMonth
from spillway_airflow.training_job import RETRYING, training_job

WINDOW = "{{{{ ti.xcom_pull(task_ids='window')['{}'] }}}}"


@dag(
    schedule=LastWeekOfMonth(),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=16,
    doc_md=__doc__,
    tags=["spillway", "training", "monthly"],
    default_args={"owner": "ml-platform"},
    params=training_parameters(),
)
def monthly_iteration() -> None:
    window = WindowSensor(task_id="window", poll_seconds="{{ params.poll_seconds }}", **RETRYING)
    training = training_job(
        "{{ params.job }}",
        dry_run_only="{{ params.dry_run }}",
        poll_seconds="{{ params.poll_seconds }}",
        environment={
            "SPILLWAY_WINDOW_START": WINDOW.format("starts_at"),
            "SPILLWAY_WINDOW_END": WINDOW.format("ends_at"),
        },
    )
    window >> training


monthly_iteration()
