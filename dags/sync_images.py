"""### Mirror images to every site

Every hour, the image of each job file goes by digest to every site that may hold the job's tier. Only missing blobs
move; equal digests are verified on both sides; a pod is launched by digest and never before its image is there.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, dag, get_current_context, task

from spillway_airflow import routines

log = logging.getLogger(__name__)


@dag(
    schedule="17 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["spillway", "movement"],
    default_args={"owner": "ml-platform", "retries": 2, "retry_delay": timedelta(seconds=30)},
    params={"dry_run": Param(False, type="boolean", title="Dry run", description="Show what would move.")},
)
def sync_images() -> None:
    @task
    def routes() -> list[dict[str, str]]:
        return routines.find_image_routes()

    @task(map_index_template="{{ route_name }}", max_active_tis_per_dagrun=4)
    def mirror(route: dict[str, str]) -> object:
        context = get_current_context()
        context["route_name"] = f"{route['name']} -> {route['site']}"
        return routines.run_image_route(route, dry_run=context["params"]["dry_run"], say=log.info)

    mirror.expand(route=routes())


sync_images()
