"""### What the month has cost, and how to spend less

Every morning, of the month that yesterday belongs to: on the first of a month that is the whole one before. Logs the
report: costs by department, business scene, job, cluster and billing type, how far budgets are spent, and advice with
its evidence and the DAG that carries it out. Where `SPILLWAY_REPORTS_DIR` names a folder, Markdown, CSV, Parquet and a
chart are written there, a folder a month; those of the month before are written anew, for pods that began in it end
later, and bookings are corrected. Dry run logs only.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import Param, dag, get_current_context, task

from spillway_airflow import costs
from spillway_airflow.heads import dry_run, routine

log = logging.getLogger(__name__)


@dag(
    schedule="40 5 * * *",
    doc_md=__doc__,
    tags=["spillway", "cost"],
    params={
        "month": Param(
            None,
            type=["null", "string"],
            title="Month",
            description="Such as 2026-03; empty for the month of yesterday.",
            pattern=r"^\d{4}-\d{2}$",
        ),
        **dry_run("Log the report, write no file."),
    },
    **routine(retries=2, retry_delay=timedelta(minutes=5)),
)
def cost_report() -> None:
    @task
    def report() -> dict[str, object]:
        return costs.run_cost_report(get_current_context()["params"], say=log.info)

    report()


cost_report()
