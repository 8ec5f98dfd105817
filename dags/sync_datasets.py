"""### Sync datasets to every site

Every hour, each dataset goes from its home to every site that may hold its tier: only new and changed objects, each
copy verified, nothing deleted. A dataset of tier `core` has no route. Updates `spillway://datasets/<name>`.
A task `sync` does a small sync by itself. A large one it plans, tasks `copy` share it by key, `merge` records it whole.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from spillway.ledger import TransferKind
from spillway_airflow import routines
from spillway_airflow.assets import SYNCED
from spillway_airflow.heads import dry_run, number, routine
from spillway_airflow.link_pool import link_group, links

log = logging.getLogger(__name__)


@dag(
    schedule="27 * * * *",
    doc_md=__doc__,
    tags=["spillway", "movement"],
    params={
        **dry_run("Show what would move."),
        "verify": Param(False, type="boolean", title="Verify", description="List and compare both sides."),
        "workers": number(4, "Workers", "Most tasks for one sync.", least=1, most=1000),
    },
    **routine(retries=2, retry_delay=timedelta(seconds=30)),
)
def sync_datasets() -> None:
    @task
    def routes(link: str | None) -> list[dict[str, str]]:
        return routines.find_dataset_routes(link)

    @task(map_index_template="{{ route_name }}", max_active_tis_per_dagrun=4, outlets=[SYNCED])
    def sync(route: dict[str, str]) -> dict[str, Any]:
        context = get_current_context()
        context["route_name"] = f"{route['name']} -> {route['site']}"
        return routines.run_dataset_route(route, **context["params"], say=log.info)

    @task(trigger_rule="all_done")
    def shares(planned: Any) -> list[dict[str, Any]]:
        return [{"route": each["route"], "share": share} for each in planned if each for share in each["shares"]]

    @task(map_index_template="{{ share_name }}")
    def copy(share: dict[str, Any]) -> dict[str, int]:
        get_current_context()["share_name"] = routines.share_name(share)
        return routines.run_share(share, say=log.info)

    @task(trigger_rule="all_done")
    def divided(planned: Any) -> list[dict[str, Any]]:
        return [each for each in planned if each and each["shares"]]

    @task(trigger_rule="all_done", outlets=[SYNCED])
    def merge(planned: dict[str, Any]) -> dict[str, Any]:
        return routines.run_merge(planned, say=log.info)

    @task(trigger_rule="one_failed")
    def every_sync_has_ended() -> None:
        raise AirflowFailException("a task failed, its log says why; that the other syncs succeeded would hide it")

    ended = every_sync_has_ended()
    for link in links():
        with link_group(TransferKind.DATASET, link):
            planned = sync.expand(route=routes(link))
            copies, merged = copy.expand(share=shares(planned)), merge.expand(planned=divided(planned))
            copies >> merged
            [planned, copies, merged] >> ended


sync_datasets()
