"""### Replicate checkpoints while training runs

Every five minutes, and whenever a run has finished, committed steps go from the site that trains to every other site
that may hold them. After the loss of a whole site a run resumes from the last replicated step. Then each site is pruned
as `checkpoints.retention` in `policy.yaml` says, nothing without it.

Each copy is an event of the asset `spillway://checkpoints/JOB` with run, site, step, bytes and metrics. Where a site
could not be reached `require_all` fails, and the DAG run with it, after what was copied elsewhere has been told.
Dry run logs what would be copied and deleted.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable, dag, get_current_context, task

from spillway.ledger import TransferKind
from spillway_airflow import routines
from spillway_airflow.assets import CHECKPOINTS, REPLICATED
from spillway_airflow.heads import dry_run, routine
from spillway_airflow.link_pool import link_group, links

log = logging.getLogger(__name__)


@dag(
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable("*/5 * * * *", timezone="UTC"), assets=[CHECKPOINTS]),
    doc_md=__doc__,
    tags=["spillway", "movement"],
    params=dry_run("Log only, copy and delete nothing."),
    **routine(retries=2, retry_delay=timedelta(seconds=30)),
)
def upload_checkpoints() -> None:
    @task(outlets=[REPLICATED])
    def replicate(link: str | None) -> list[str]:
        return routines.run_upload(link, dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    @task(trigger_rule="all_done")
    def prune() -> list[str]:
        return routines.run_prune(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    @task
    def require_all(failed: list[list[str]]) -> None:
        routines.require_upload([problem for each in failed for problem in each])

    copied, pruned = [], prune()
    for link in links():
        with link_group(TransferKind.CHECKPOINT, link):
            copied.append(replicate(link))
    copied >> pruned
    require_all([*copied, pruned])


upload_checkpoints()
