"""### Policies side by side on one's own history

Every Sunday: the jobs of the last eight weeks, own and imported, are replayed over simulated clusters under the policy
in force, the candidate of `shadow.yaml` if there is one, and every preset. Logs the comparison. Where
`SPILLWAY_REPORTS_DIR` names a folder, `replays/<day>.html` there is the page with plots and `replays/<day>.json` the
figures. With less than a week of jobs it says so and is done. Dry run logs only.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, dag, get_current_context, task

from spillway_airflow import policies

log = logging.getLogger(__name__)


@dag(
    schedule="50 2 * * 0",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["spillway", "policy"],
    default_args={"owner": "ml-platform", "retries": 2, "retry_delay": timedelta(minutes=5)},
    params={
        "days": Param(56, type="integer", minimum=7, maximum=400, title="Days", description="Of the newest jobs."),
        "dry_run": Param(False, type="boolean", title="Dry run", description="Log the comparison, write no file."),
    },
)
def replay_policies() -> None:
    @task
    def compare() -> dict[str, object] | None:
        params = get_current_context()["params"]
        return policies.run_comparison(days=params["days"], dry_run=params["dry_run"], say=log.info)

    compare()


replay_policies()
