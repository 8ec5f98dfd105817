"""### Bring runs back to on-premises when it has room again

Every ten minutes, where `returning` in the block `scaling` of `policy.yaml` says so: runs that train on bought GPUs for
longer than its `after` go back to on-premises where that saves more than it costs, those first that leave a cloud node
empty. Each goes by the order of every move: image, data and checkpoints are brought there while it trains on, then its
pod commits and ends, and whoever carries it takes it there. Dry run shows who would go back, and what that saves.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from spillway_airflow import scaling
from spillway_airflow.heads import dry_run, routine

log = logging.getLogger(__name__)


@dag(
    schedule="*/10 * * * *",
    doc_md=__doc__,
    tags=["spillway", "scaling"],
    params=dry_run("Show only, move nothing."),
    **routine(retries=1, retry_delay=timedelta(seconds=30)),
)
def return_runs() -> None:
    @task
    def choose() -> list[dict[str, object]]:
        return scaling.run_choose_returns(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    @task(map_index_template="{{ back['run'] }}", max_active_tis_per_dag=4)
    def bring_back(back: dict[str, object]) -> dict[str, object]:
        return scaling.run_return(back, say=log.info)

    bring_back.expand(back=choose())


return_runs()
