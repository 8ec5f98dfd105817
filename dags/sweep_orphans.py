"""### Put right what nobody looks after

Every ten minutes. An attempt whose lease nobody renews and of which no pod runs is closed, which frees its
reservation. A pod is stopped when its attempt was settled, when the ledger does not know it, or when its lease is over
and its task has ended (it was marked while the triggerer was down). A pod that worked on after its attempt was settled
is billed to its end. What ended more than 24 hours ago is removed from the cluster, and so are Secrets of datasets that
may not be read from there any more. Dry run only lists all this.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from spillway_airflow import routines
from spillway_airflow.heads import dry_run, routine

log = logging.getLogger(__name__)


@dag(
    schedule="*/10 * * * *",
    doc_md=__doc__,
    tags=["spillway", "operation"],
    params=dry_run("List only, change nothing."),
    **routine(retries=1, retry_delay=timedelta(seconds=30)),
)
def sweep_orphans() -> None:
    @task
    def sweep() -> list[dict[str, object]]:
        return routines.run_sweep(dry_run=get_current_context()["params"]["dry_run"], say=log.info)

    sweep()


sweep_orphans()
