"""### Train a model where there is room for it

Places a job (on-premises first, else in a cloud), brings its image and data there, trains, and goes on elsewhere from
the newest checkpoint when its node is lost or taken away.

* **Start it** from this form, over REST, on a schedule of your own DAG (see `train_nightly`) or as a backfill.
* **Job** is the name of a file in `include/jobs`.
* **Dry run** shows the decision and what would be moved, and changes nothing.
* Marking or clearing the `train` task stops the pod with its grace.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag

from spillway_airflow.heads import training_parameters
from spillway_airflow.training_job import training_job


@dag(
    dag_id="train",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=16,
    dagrun_timeout=timedelta(days=14),
    doc_md=__doc__,
    tags=["spillway", "training"],
    default_args={"owner": "ml-platform"},
    params=training_parameters(),
)
def train() -> None:
    training_job("{{ params.job }}", dry_run_only="{{ params.dry_run }}", poll_seconds="{{ params.poll_seconds }}")


train()
