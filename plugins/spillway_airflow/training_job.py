"""The whole pipeline of one training job as a task group that a user's DAG calls in a few lines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import TaskGroup

from spillway.ledger import TransferKind
from spillway_airflow.assets import CHECKPOINTS
from spillway_airflow.link_pool import turn
from spillway_airflow.operators.place_job import PlaceJobOperator
from spillway_airflow.operators.settle_job import SettleJobOperator
from spillway_airflow.operators.sync_dataset import SyncDatasetOperator
from spillway_airflow.operators.sync_image import SyncImageOperator
from spillway_airflow.operators.training_pod import TrainingPodOperator

GROUP = "training"
RETRYING: dict[str, Any] = {
    "retries": 10,
    "retry_delay": timedelta(seconds=10),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=10),
}
"""For lost workers, of which a training of weeks sees several, and for outages of most of an hour; each retry finds the
open attempt again. What no retry can help fails at once."""


def training_job(
    job: str,
    *,
    group_id: str = GROUP,
    dry_run_only: bool | str = False,
    poll_seconds: float | str = 10.0,
) -> TaskGroup:
    """place -> sync image and dataset -> train -> settle, for a job file of the jobs directory.

    Args:
        job: the job file's name, or a template of it such as ``{{ params.job }}``.
        group_id: each job of a DAG that has several needs one of its own; it is then the prefix of its task ids.
        dry_run_only: a boolean, or a template that renders to one.
        poll_seconds: how often the pod is looked at: a number, or a template that renders to one.
    """
    with TaskGroup(
        group_id=group_id,
        prefix_group_id=group_id != GROUP,
        default_args=RETRYING,  # type: ignore[arg-type]
    ) as group:
        place = PlaceJobOperator(task_id="place", job=job, dry_run_only=dry_run_only, poll_seconds=poll_seconds)
        run = f"{{{{ ti.xcom_pull(task_ids='{place.task_id}')['run'] }}}}"
        image = SyncImageOperator(task_id="sync_image", training_run=run, **turn(TransferKind.IMAGE))
        dataset = SyncDatasetOperator(task_id="sync_dataset", training_run=run, **turn(TransferKind.DATASET))
        train = TrainingPodOperator(task_id="train", training_run=run, poll_seconds=poll_seconds, outlets=[CHECKPOINTS])
        settle = SettleJobOperator(task_id="settle", training_run=run)
        place >> [image, dataset] >> train >> settle
    return group
