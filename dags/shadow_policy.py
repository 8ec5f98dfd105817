"""### What another policy would have decided yesterday

Every night, where `shadow.yaml` lies beside `policy.yaml`: that candidate decides on the stored snapshot of each
decision of yesterday (UTC), and the log tells which jobs would have run elsewhere or waited, and what an hour of them
costs then; and it plans at each stored look of the scaler, and the log tells of which pools it would have had more or
fewer nodes. Nothing is changed, and no cluster is asked. Where `SPILLWAY_REPORTS_DIR` names a folder,
`shadow/<day>.json` there has every difference. Without a candidate the task is skipped. Dry run logs only.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from spillway_airflow import policies
from spillway_airflow.heads import dry_run, routine

log = logging.getLogger(__name__)


@dag(
    schedule="20 0 * * *",
    doc_md=__doc__,
    tags=["spillway", "policy"],
    params=dry_run("Log the report, write no file."),
    **routine(retries=2, retry_delay=timedelta(minutes=5)),
)
def shadow_policy() -> None:
    @task
    def shadow() -> dict[str, object]:
        return policies.run_shadow(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    shadow()


shadow_policy()
