"""### Example: a job that runs when its dataset was synced

`sync_datasets` updates one asset a dataset; this DAG runs after each update of the digits.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import dag

from spillway_airflow.assets import dataset_asset
from spillway_airflow.training_job import training_job


@dag(
    schedule=[dataset_asset("digits")],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["spillway", "training", "example"],
    default_args={"owner": "ml-platform"},
)
def train_on_new_data() -> None:
    training_job("digits")


train_on_new_data()
