"""### Replicate checkpoints while training runs

Every five minutes, and whenever a run has finished, committed steps go from the site that trains to every other site
that may hold them. After the loss of a whole site a run resumes from the last replicated step.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import AssetOrTimeSchedule, CronTriggerTimetable, dag, task

from spillway_airflow import routines
from spillway_airflow.assets import CHECKPOINTS

log = logging.getLogger(__name__)


@dag(
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable("*/5 * * * *", timezone="UTC"), assets=[CHECKPOINTS]),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["spillway", "movement"],
    default_args={"owner": "ml-platform", "retries": 2, "retry_delay": timedelta(seconds=30)},
)
def upload_checkpoints() -> None:
    @task
    def replicate() -> None:
        routines.run_upload(log.info)

    replicate()


upload_checkpoints()
