"""### Bring cloud node pools to what is needed

Every minute: what waits, how busy the clusters are, forecasts, windows and people's orders become one target for each
pool that declares `scaled_by`, and its provider is asked for it. This is the only DAG that changes node pools; while
another one scales, from the command line say, it is skipped and says so. Each change has a line with its reasons in the
ledger: `python -m spillway scale changes`. A pool that cannot be read keeps its size. What a provider refuses, a node
that fails and nodes that are late are told once to those whom `notices` in `budgets.yaml` names.
Dry run shows what would be done, and why.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from spillway_airflow import scaling
from spillway_airflow.heads import dry_run, routine

log = logging.getLogger(__name__)


@dag(
    schedule="* * * * *",
    doc_md=__doc__,
    tags=["spillway", "scaling"],
    params=dry_run("Show the plan, change nothing."),
    **routine(retries=1, retry_delay=timedelta(seconds=20)),
)
def scale_node_pools() -> None:
    @task
    def scale() -> list[dict[str, object]]:
        return scaling.run_scale(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    scale()


scale_node_pools()
