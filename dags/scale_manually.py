"""### Order nodes, or shrink a pool by force

Shows the plan, waits for somebody to approve it, then acts on what still holds of it. Whoever refuses, or does not
answer for an hour, changes nothing; nor does this DAG: `scale_node_pools` carries out what it orders, then it compares.

* **Pool** is `CLUSTER/POOL`, one that declares `scaled_by`.
* **Action** `add` brings that many nodes more, ready within ten minutes: the log of `effect` shows the time that is
  left, and who is to know is told when it is over. `shrink` brings the pool down to that many: the plan says who stays,
  who moves and who pauses, what work is lost and what an hour saves.
* **Hours** is how long the order holds; `scale withdraw ORDER` ends it earlier. **Dry run** only shows the plan.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Param, PokeReturnValue, dag, get_current_context, task

from spillway.model import MOST_ORDER_HOURS
from spillway_airflow import scaling
from spillway_airflow.heads import dry_run, number

log, HOUR = logging.getLogger(__name__), timedelta(hours=1)
PLAN = "{{ ti.xcom_pull(task_ids='plan')['text'] }}"


@dag(
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=16,
    doc_md=__doc__,
    tags=["spillway", "scaling", "operation"],
    default_args={"owner": "ml-platform", "retries": 3, "retry_delay": timedelta(seconds=30)},
    params={
        "pool": Param(type="string", title="Pool", description="CLUSTER/POOL, one with scaled_by.", minLength=1),
        "action": Param("add", type="string", title="Action", enum=["add", "shrink"]),
        "nodes": number(1, "Nodes", "So many more, or down to so many.", least=0, most=100_000),
        "hours": number(4, "Hours", "How long the order holds.", least=1, most=MOST_ORDER_HOURS),
        **dry_run("Show the plan only."),
    },
)
def scale_manually() -> None:
    @task
    def plan() -> dict[str, object]:
        return scaling.run_plan(get_current_context()["params"], say=log.info)

    @task
    def order(planned: dict[str, object]) -> list[dict[str, object]]:
        return scaling.run_order(get_current_context()["params"], planned, say=log.info)

    @task.sensor(mode="reschedule", poke_interval=10, timeout=HOUR.total_seconds())
    def taken_up() -> PokeReturnValue:
        return scaling.look_whether_taken_up(say=log.info)

    @task(map_index_template="{{ departure['run'] }}")
    def leave(departure: dict[str, object]) -> str:
        return scaling.run_departure(departure, say=log.info)

    @task.sensor(mode="reschedule", poke_interval=10, trigger_rule="none_failed_min_one_success")
    def effect(departures: list[dict[str, object]]) -> PokeReturnValue:
        return scaling.look_at_effect(departures, say=log.info)

    planned = plan()
    subject = "{{ params.action }} {{ params.nodes }} at {{ params.pool }}?"
    approve = ApprovalOperator(
        task_id="approve", subject=subject, body=PLAN, response_timeout=HOUR, retry_policy=scaling.UNANSWERED
    )
    departures = order(planned)
    scale_now = TriggerDagRunOperator(task_id="scale_now", trigger_dag_id="scale_node_pools")
    seen = taken_up()
    left = leave.expand(departure=departures)
    planned >> approve >> departures >> scale_now >> seen >> left
    [seen, left] >> effect(departures)


scale_manually()
