"""### Mirror images to every site

Every hour, the image of each job file, and the tags of each repository in `images.yaml`, go by digest to every site
that may hold their tier. Only missing blobs move; equal digests are verified on both sides; a pod is launched by digest
and never before its image is there. A repository with a tag that could not be mirrored fails its own task only.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import Param, dag, get_current_context, task

from spillway.ledger import TransferKind
from spillway_airflow import routines
from spillway_airflow.heads import dry_run, routine
from spillway_airflow.link_pool import link_group, links

log = logging.getLogger(__name__)


@dag(
    schedule="17 * * * *",
    doc_md=__doc__,
    tags=["spillway", "movement"],
    params={
        **dry_run("Show what would move."),
        "verify": Param(
            False,
            type="boolean",
            title="Verify",
            description="Look below every tag of a repository for layers that its site has lost.",
        ),
    },
    **routine(retries=2, retry_delay=timedelta(seconds=30)),
)
def sync_images() -> None:
    @task
    def routes(link: str | None) -> list[dict[str, str]]:
        return routines.find_image_routes(link)

    @task(map_index_template="{{ route_name }}", max_active_tis_per_dagrun=4)
    def mirror(route: dict[str, str]) -> object:
        context = get_current_context()
        context["route_name"] = f"{route['name']} -> {route['site']}"
        return routines.run_image_route(route, dry_run=context["params"]["dry_run"], say=log.info)

    @task
    def repositories(link: str | None) -> list[dict[str, str]]:
        return routines.find_repository_routes(link)

    @task(map_index_template="{{ route_name }}", max_active_tis_per_dagrun=4)
    def mirror_repository(route: dict[str, str]) -> object:
        context = get_current_context()
        context["route_name"] = f"{route['name']} -> {route['site']}"
        chosen = context["params"]
        return routines.run_repository_route(route, dry_run=chosen["dry_run"], verify=chosen["verify"], say=log.info)

    for link in links():
        with link_group(TransferKind.IMAGE, link):
            mirror.expand(route=routes(link))
            mirror_repository.expand(route=repositories(link))


sync_images()
