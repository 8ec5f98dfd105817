"""### What another policy would have decided yesterday

Every night, where `shadow.yaml` lies beside `policy.yaml`: that candidate decides on the stored snapshot of each
decision of yesterday (UTC), and the log tells which jobs would have run elsewhere or waited, and what an hour of them
costs then. Nothing is changed, and no cluster is asked. Where `SPILLWAY_REPORTS_DIR` names a folder,
`shadow/<day>.json` there has every difference. Without a candidate the task is skipped. Dry run logs only.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, dag, get_current_context, task

from spillway_airflow import policies

log = logging.getLogger(__name__)


@dag(
    schedule="20 0 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["spillway", "policy"],
    default_args={"owner": "ml-platform", "retries": 2, "retry_delay": timedelta(minutes=5)},
    params={"dry_run": Param(False, type="boolean", title="Dry run", description="Log the report, write no file.")},
)
def shadow_policy() -> None:
    @task
    def shadow() -> dict[str, object]:
        return policies.run_shadow(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    shadow()


shadow_policy()
