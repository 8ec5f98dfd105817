"""### Sync datasets to every site

Every hour, each dataset goes from its home to every site that may hold its tier: only new and changed objects, each
copy verified, nothing deleted. A dataset of tier `core` has no route. Updates `spillway://datasets/<name>`.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, dag, get_current_context, task

from spillway_airflow import routines
from spillway_airflow.assets import SYNCED

log = logging.getLogger(__name__)


@dag(
    schedule="27 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["spillway", "movement"],
    default_args={"owner": "ml-platform", "retries": 2, "retry_delay": timedelta(seconds=30)},
    params={"dry_run": Param(False, type="boolean", title="Dry run", description="Show what would move.")},
)
def sync_datasets() -> None:
    @task
    def routes() -> list[dict[str, str]]:
        return routines.find_dataset_routes()

    @task(map_index_template="{{ route_name }}", max_active_tis_per_dagrun=4, outlets=[SYNCED])
    def sync(route: dict[str, str]) -> dict[str, object]:
        context = get_current_context()
        context["route_name"] = f"{route['name']} -> {route['site']}"
        return routines.run_dataset_route(route, dry_run=context["params"]["dry_run"], say=log.info)

    sync.expand(route=routes())


sync_datasets()
