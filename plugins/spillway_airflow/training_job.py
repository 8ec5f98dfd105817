"""The whole pipeline of one training job as a task group that a user's DAG calls in a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

from airflow.sdk import TaskGroup

from spillway.ledger import TransferKind
from spillway_airflow.assets import CHECKPOINTS
from spillway_airflow.link_pool import links, pool_of, turn
from spillway_airflow.operators.place_job import PlaceJobOperator
from spillway_airflow.operators.settle_job import SettleJobOperator
from spillway_airflow.operators.staging import StagingOperator
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
    environment: Mapping[str, str] | None = None,
) -> TaskGroup:
    """place -> sync image and dataset -> train -> settle, for a job file of the jobs directory.

    Each link with a pool of its own has its own tasks that sync: ``place`` skips those that the place does not need.

    Args:
        job: the job file's name, or a template of it such as ``{{ params.job }}``.
        group_id: each job of a DAG that has several needs one of its own; it is then the prefix of its task ids.
        dry_run_only: a boolean, or a template that renders to one.
        poll_seconds: how often the pod is looked at: a number, or a template that renders to one.
        environment: variables for the job's program beside those of the job file; the values may be templates.
    """
    with TaskGroup(
        group_id=group_id,
        prefix_group_id=group_id != GROUP,
        default_args=RETRYING,  # type: ignore[arg-type]
    ) as group:
        place = PlaceJobOperator(
            task_id="place", job=job, dry_run_only=dry_run_only, poll_seconds=poll_seconds, environment=environment
        )
        run = f"{{{{ ti.xcom_pull(task_ids='{place.task_id}')['run'] }}}}"
        staging = [task for link in links() for task in _staging(run, link)]
        train = TrainingPodOperator(
            task_id="train",
            training_run=run,
            poll_seconds=poll_seconds,
            outlets=[CHECKPOINTS],
            trigger_rule="none_failed_min_one_success",
        )
        settle = SettleJobOperator(task_id="settle", training_run=run)
        place >> staging >> train >> settle
    return group


def _staging(run: str, link: str | None) -> tuple[StagingOperator, StagingOperator]:
    """The tasks that bring image and data over the link; where it has a pool, the pool's name begins their ids.

    Not the cluster's: the DAG is a user's, who may have a group or task of that name.
    """
    with TaskGroup(pool_of(link)) if link is not None else nullcontext():
        image = SyncImageOperator(
            task_id="sync_image", training_run=run, link=link, **turn(TransferKind.IMAGE, link, awaited=True)
        )
        dataset = SyncDatasetOperator(
            task_id="sync_dataset", training_run=run, link=link, **turn(TransferKind.DATASET, link, awaited=True)
        )
    return image, dataset
