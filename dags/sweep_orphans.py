"""### Stop pods that nobody owns

Every ten minutes. A pod is an orphan when its attempt was settled, when the ledger does not know it, or when its lease
is over and its task has ended (it was marked while the triggerer was down). Dry run only lists them.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, dag, get_current_context, task

from spillway_airflow import routines

log = logging.getLogger(__name__)


@dag(
    schedule="*/10 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["spillway", "operation"],
    default_args={"owner": "ml-platform", "retries": 1, "retry_delay": timedelta(seconds=30)},
    params={"dry_run": Param(False, type="boolean", title="Dry run", description="List orphans, stop none.")},
)
def sweep_orphans() -> None:
    @task
    def sweep() -> list[dict[str, object]]:
        return routines.run_sweep(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    sweep()


sweep_orphans()
