"""### Policies side by side on one's own history

Every Sunday: the jobs of the last eight weeks, own and imported, are replayed over simulated clusters under the policy
in force, the candidate of `shadow.yaml` if there is one, and every preset. Logs the comparison. Where
`SPILLWAY_REPORTS_DIR` names a folder, `replays/<day>.html` there is the page with plots and `replays/<day>.json` the
figures. With less than a week of jobs it says so and is done. Dry run logs only.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from spillway_airflow import policies
from spillway_airflow.heads import dry_run, number, routine

log = logging.getLogger(__name__)


@dag(
    schedule="50 2 * * 0",
    doc_md=__doc__,
    tags=["spillway", "policy"],
    params={
        "days": number(56, "Days", "Of the newest jobs.", least=7, most=400),
        **dry_run("Log the comparison, write no file."),
    },
    **routine(retries=2, retry_delay=timedelta(minutes=5)),
)
def replay_policies() -> None:
    @task
    def compare() -> dict[str, object] | None:
        params = get_current_context()["params"]
        return policies.run_comparison(days=params["days"], dry_run=params["dry_run"], say=log.info)

    compare()


replay_policies()
