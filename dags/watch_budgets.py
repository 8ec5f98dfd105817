"""### Tell of budgets that are nearly spent, and of runs that cannot meet their deadline

Every ten minutes. When a department has spent 80 % or 100 % of its budget for the month, those whom `notices` in
`budgets.yaml` names are told by mail, chat or SMS: once a crossing and month, and anew where the limit was changed.
They are told once, too, of a run that can no longer be done within the `finish_within` of its job. What could not be
delivered fails this task and is tried again by the next run. Dry run shows who would be told.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from spillway_airflow import costs
from spillway_airflow.heads import dry_run, routine

log = logging.getLogger(__name__)


@dag(
    schedule="*/10 * * * *",
    doc_md=__doc__,
    tags=["spillway", "cost"],
    params=dry_run("Show only, tell nobody."),
    **routine(retries=1, retry_delay=timedelta(minutes=1)),
)
def watch_budgets() -> None:
    @task
    def watch() -> list[dict[str, object]]:
        return costs.run_watch_budgets(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    watch()


watch_budgets()
