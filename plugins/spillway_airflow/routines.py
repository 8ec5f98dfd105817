"""The tasks of the standing DAGs: each calls one library function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from airflow.sdk import get_current_context
from airflow.sdk.exceptions import AirflowException

from spillway.codec import decode, encode
from spillway.config import jobs_directory, load_job
from spillway.errors import ConfigError
from spillway.images.reference import ImageReference
from spillway.model import JobSpec
from spillway.runs.cancelling import sweep
from spillway.runs.distribution import Route, dataset_routes, image_routes, upload_checkpoints
from spillway.runs.planning import plan_image
from spillway.runs.services import Services
from spillway.runs.staging import copy_dataset, copy_image
from spillway.sync.report import summary
from spillway_airflow.assets import SYNCED, dataset_asset
from spillway_airflow.failures import typed_failures
from spillway_airflow.hooks import worker_services

LIVING = frozenset(
    {"scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "restarting", "awaiting_input"}
)


def declared_jobs(services: Services) -> tuple[JobSpec, ...]:
    """Every job file that can be read; a broken one is left to whoever starts it."""
    jobs = []
    for path in sorted(jobs_directory(os.environ).glob("*.yaml")):
        try:
            jobs.append(load_job(path, services.configuration.datasets))
        except ConfigError:
            continue
    return tuple(jobs)


def find_image_routes() -> list[dict[str, str]]:
    """Plain routes for a mapped task."""
    with typed_failures():
        services = worker_services()
        return [encode(route) for route in image_routes(services, declared_jobs(services))]


def find_dataset_routes() -> list[dict[str, str]]:
    """Plain routes for a mapped task."""
    with typed_failures():
        return [encode(route) for route in dataset_routes(worker_services())]


def run_image_route(route: Mapping[str, str], *, dry_run: bool, say: Any) -> Any:
    """Mirror one image to one site."""
    with typed_failures():
        services, wanted = worker_services(), decode(Route, dict(route))
        reference = ImageReference.parse(wanted.name)
        if dry_run:
            say("%s", plan_image(services, wanted.name, wanted.site))
            return None
        report = copy_image(services, reference.repository, reference.reference, wanted.site, tier=wanted.tier)
        say("%s at %s is %s: %d bytes moved", wanted.name, wanted.site, report.digest, report.bytes_copied)
        return encode(report)


def run_dataset_route(route: Mapping[str, str], *, dry_run: bool, say: Any) -> dict[str, Any]:
    """Sync one dataset to one site and tell the dataset's asset."""
    with typed_failures():
        services, wanted = worker_services(), decode(Route, dict(route))
        dataset = services.configuration.datasets[wanted.name]
        report = copy_dataset(services, dataset, wanted.site, dry_run=dry_run)
    found = summary(report)
    say("%s at %s: %s", wanted.name, wanted.site, found)
    if report.objects_copied and not dry_run:
        get_current_context()["outlet_events"][SYNCED].add(dataset_asset(wanted.name), extra={"site": wanted.site})
    return found


def run_upload(say: Any) -> None:
    """Replicate checkpoints; the task fails, and is retried, when a run could not be replicated."""
    with typed_failures():
        failed = upload_checkpoints(worker_services(), say)
    if failed:
        raise AirflowException("; ".join(failed))


def run_sweep(*, dry_run: bool, say: Any) -> list[dict[str, Any]]:
    """Stop the pods that nobody owns."""
    ti = get_current_context()["ti"]

    def owner_alive(origin: Mapping[str, Any]) -> bool:
        if "dag_id" not in origin:
            return False  # started from a command line, which renews the lease while it lives
        found = ti.get_task_states(dag_id=origin["dag_id"], run_ids=[origin["run_id"]])
        return pipeline_lives(origin, found.get(origin["run_id"], {}))

    with typed_failures():
        return [encode(entry) for entry in sweep(worker_services(), owner_alive, say, dry_run=dry_run)]


def pipeline_lives(origin: Mapping[str, Any], states: Mapping[str, Any]) -> bool:
    """Whether a task of the run's own pipeline may still look after it, by the states of the DAG run's tasks.

    ``origin`` names the task that placed the run; its task group is the pipeline.
    """
    group = str(origin["task_id"]).rpartition(".")[0]
    mine = (state for task_id, state in states.items() if not group or task_id.startswith(f"{group}."))
    return any(state in LIVING for state in mine)
