"""Operators and sensors: templates, and what the task group wires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import TaskDeferred
from airflow.serialization.serialized_objects import DagSerialization

from spillway.testing.installed import Installed
from spillway_airflow.operators.place_job import PlaceJobOperator
from spillway_airflow.operators.settle_job import SettleJobOperator
from spillway_airflow.operators.sync_dataset import SyncDatasetOperator
from spillway_airflow.operators.sync_image import SyncImageOperator
from spillway_airflow.operators.training_pod import TrainingPodOperator
from spillway_airflow.sensors.capacity import CapacitySensor
from spillway_airflow.sensors.checkpoint import CheckpointSensor
from spillway_airflow.sensors.window import WindowSensor
from spillway_airflow.training_job import training_job

CONTEXT: dict[str, Any] = {
    "params": {"job": "digits", "dry_run": True, "poll_seconds": 3, "run": "digits-1", "step": 8}
}
TEMPLATES = {
    "job": ("{{ params.job }}", "digits"),
    "dry_run_only": ("{{ params.dry_run }}", "True"),
    "poll_seconds": ("{{ params.poll_seconds }}", "3"),
    "training_run": ("{{ params.run }}", "digits-1"),
    "step": ("{{ params.step }}", "8"),
    "environment": ({"STEP": "{{ params.step }}"}, "{'STEP': '8'}"),
}
CLASSES: dict[type[BaseOperator], tuple[str, ...]] = {
    PlaceJobOperator: ("job", "dry_run_only", "poll_seconds", "environment"),
    SyncImageOperator: ("training_run",),
    SyncDatasetOperator: ("training_run",),
    TrainingPodOperator: ("training_run", "poll_seconds"),
    SettleJobOperator: ("training_run",),
    CapacitySensor: ("job", "poll_seconds"),
    CheckpointSensor: ("training_run", "step"),
    WindowSensor: ("poll_seconds",),
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_argument_may_be_a_template(kind: type[BaseOperator]) -> None:
    names = CLASSES[kind]
    task = kind(task_id="task", **{name: TEMPLATES[name][0] for name in names})
    task.render_template_fields(CONTEXT)

    assert tuple(kind.template_fields) == names
    assert {name: str(getattr(task, name)) for name in names} == {name: TEMPLATES[name][1] for name in names}


def test_a_users_dag_gets_the_whole_pipeline_from_one_call() -> None:
    with DAG(dag_id="users", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        training_job("digits", poll_seconds=2)

    assert {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks} == {
        "place": [],
        "sync_image": ["place"],
        "sync_dataset": ["place"],
        "train": ["sync_dataset", "sync_image"],
        "settle": ["train"],
    }
    assert [asset.uri for asset in dag.get_task("train").outlets] == ["spillway://checkpoints/"]


def test_an_outage_of_most_of_an_hour_ends_no_task() -> None:
    with DAG(dag_id="users", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        training_job("digits")
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))

    for task in stored.tasks:
        pauses = retry_pauses(task)
        assert pauses[0] <= timedelta(seconds=20), "a lost worker is followed soon"
        assert max(pauses) <= timedelta(minutes=10), "the end of an outage is noticed"
        assert timedelta(minutes=50) <= sum(pauses, timedelta()) <= timedelta(hours=1)


def retry_pauses(task: Any) -> list[timedelta]:
    """How long Airflow's scheduler lets the stored task rest after each of its tries but the last."""
    ended_at, pauses = datetime.now(UTC), []
    instance = TaskInstance(task, dag_version_id=uuid4())
    instance.end_date = ended_at
    for instance.try_number in range(1, task.retries + 1):
        pauses.append(instance.next_retry_datetime() - ended_at)
    return pauses


def test_a_sensor_asks_as_its_own_dag(installed: Installed) -> None:
    with DAG(dag_id="users", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        sensor = CapacitySensor(task_id="capacity", job="digits")
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    assert deferred.value.trigger.dag == "users"


def test_two_jobs_in_one_dag_do_not_share_a_run() -> None:
    with DAG(dag_id="two", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        training_job("first", group_id="first")
        training_job("second", group_id="second")

    trains = [task for task in dag.tasks if isinstance(task, TrainingPodOperator)]
    assert len(trains) == 2
    for task in trains:
        (place,) = [other for other in task.get_flat_relatives(upstream=True) if isinstance(other, PlaceJobOperator)]
        assert f"'{place.task_id}'" in task.training_run
