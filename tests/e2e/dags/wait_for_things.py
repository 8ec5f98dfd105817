"""### Both sensors, for tests"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import Param, dag

from spillway_airflow.sensors.capacity import CapacitySensor
from spillway_airflow.sensors.checkpoint import CheckpointSensor


@dag(
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=4,
    doc_md=__doc__,
    tags=["test"],
    default_args={"owner": "tests", "retries": 1},
    params={
        "job": Param("digits", type="string"),
        "run": Param("", type="string"),
        "step": Param(1, type="integer"),
    },
)
def wait_for_things() -> None:
    CapacitySensor(task_id="capacity", job="{{ params.job }}", poll_seconds=1)
    CheckpointSensor(
        task_id="checkpoint", training_run="{{ params.run }}", step="{{ params.step }}", poke_interval=10, timeout=600
    )


wait_for_things()
