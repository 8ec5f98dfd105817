"""### Move a run that trains to another place

Holds the target, brings image, data and checkpoints there while the run trains on, then lets its pod commit and end.
The run's own `train` task carries it to the target; this DAG orders and watches until the first step there was seen.

* **Run** is the name that `runs list` and the XCom of `place` show.
* **Target** is `CLUSTER`, `CLUSTER/POOL`, `CLUSTER/POOL/BILLING`, `best` for the best other place, or
  `not-spot` for the best one that is not spot.
* **Wait for checkpoint** lets the run commit once more first, where its last checkpoint does not fit its pod's grace.
* **As advised** lets the run stay where the move does not pay, and commit once more where that is the advice.
* **Dry run** shows the estimate and the advice, and changes nothing.
* A target that refuses or fails leaves the run where it is. Clearing goes on with the same order.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import Param, PokeReturnValue, dag, get_current_context, task

from spillway_airflow import routines
from spillway_airflow.heads import dry_run, number

log = logging.getLogger(__name__)


@dag(
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=16,
    dagrun_timeout=timedelta(days=2),
    doc_md=__doc__,
    tags=["spillway", "operation"],
    default_args={"owner": "ml-platform", "retries": 3, "retry_delay": timedelta(seconds=30)},
    params={
        "run": Param(type="string", title="Run", description="Its name, as `runs list` shows it.", minLength=1),
        "target": Param("best", type="string", title="Target", description="A place, best or not-spot.", minLength=1),
        "reason": Param("ordered from the form", type="string", title="Reason", description="Kept in the ledger."),
        "wait_for_checkpoint": number(
            0, "Wait for checkpoint", "Minutes at most; 0 drains at once.", least=0, most=1440
        ),
        "as_advised": Param(False, type="boolean", title="As advised", description="Stay or wait where it says so."),
        **dry_run("Show estimate and advice only."),
    },
)
def migrate_job() -> None:
    @task
    def order() -> dict[str, object]:
        return routines.run_move_order(get_current_context()["params"], say=log.info)

    @task.sensor(mode="reschedule", poke_interval=10, timeout=timedelta(days=1).total_seconds())
    def first_step(move: dict[str, object]) -> PokeReturnValue:
        return routines.look_at_move(move, say=log.info)

    first_step(order())


migrate_job()
