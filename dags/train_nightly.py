"""### Example: a job on a schedule

The same pipeline as `train`, every night and for any day of a backfill.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import CronDataIntervalTimetable, dag

from spillway_airflow.training_job import training_job


@dag(
    schedule=CronDataIntervalTimetable("0 1 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=2,
    doc_md=__doc__,
    tags=["spillway", "training", "example"],
    default_args={"owner": "ml-platform"},
)
def train_nightly() -> None:
    training_job("digits")


train_nightly()
