"""Nodes that come for a burst of jobs and go when they idle, and orders that somebody approves or refuses first."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spillway.clouds.base import NodePoolScaler
from spillway.clouds.scalable import IDLE_SINCE
from spillway.model import Outcome, PoolUse
from spillway.runs.scaling_effects import usable_nodes
from spillway.runs.scaling_orders import pool_named
from spillway.sandbox import drills
from spillway.sandbox.airflow_api import Conflict
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = pytest.mark.timeout(900)
PLACE = "cloud/gpu"
FIRST = 2
"""So many nodes the cloud begins with."""
LONG_AGO = timedelta(hours=1)


@pytest.fixture(scope="module")
def cloud(airflow: AirflowSandbox) -> Iterator[AirflowSandbox]:
    """The sandbox with its scaler; machines come within two seconds. Afterwards it has its first number of nodes."""
    for dag_id in ("scale_node_pools", "scale_manually"):
        airflow.api.wait_for_dag(dag_id)
        airflow.api.unpause(dag_id)
    drills.misbehave(airflow.settings, boot=timedelta(seconds=2))
    yield airflow
    airflow.api.call("PATCH", "/dags/scale_node_pools", {"is_paused": True})
    wait_for(lambda: [run.facts()["state"] for run in airflow.runs("scale_node_pools")], lambda s: "running" not in s)
    scaler, spare = _scaler(airflow), [node.name for node in pool(airflow).nodes[FIRST:]]
    scaler.set_target("gpu", FIRST, remove=spare)
    wait_for(lambda: usable_nodes(pool(airflow)), lambda nodes: nodes == FIRST)
    drills.give_back(airflow.settings)


def _scaler(airflow: AirflowSandbox) -> NodePoolScaler:
    scaler = airflow.services.scaler("cloud")
    assert scaler is not None
    return scaler


def pool(airflow: AirflowSandbox) -> PoolUse:
    return pool_named(airflow.services, PLACE)


def names(airflow: AirflowSandbox) -> set[str]:
    return {node.name for node in pool(airflow).nodes}


def idle_since(airflow: AirflowSandbox, node: str, since: datetime) -> None:
    """Have the node be idle since then: nobody waits in a test for as long as idle nodes stay."""
    from kubernetes.client import CoreV1Api
    from kubernetes.config import new_client_from_config

    client = new_client_from_config(str(airflow.settings.state / "cloud" / "kubeconfig.json"))
    CoreV1Api(client).patch_node(node, {"metadata": {"annotations": {IDLE_SINCE: since.isoformat()}}})


def answer(run: DagRun, choice: str) -> dict[str, Any]:
    """What a person does under "Required Actions"; gives what that person was shown.

    Airflow may take a task whose answer comes within seconds for one that failed, and asks again: so is answered again.
    """
    run.wait_for_task("approve", "awaiting_input")
    path = f"{run.path}/taskInstances/approve/-1/hitlDetails"
    shown: dict[str, Any] = run.api.call("GET", path)

    def state() -> str:
        now = str(run.tasks()["approve"]["state"])
        if now == "awaiting_input" and not run.api.call("GET", path)["response_received"]:
            with suppress(Conflict):
                run.api.call("PATCH", path, {"chosen_options": [choice], "params_input": {}})
        return now

    run.until(state, lambda now: now in {"success", "failed"})
    return shown


def test_a_burst_of_jobs_has_a_node_ordered_that_boots_trains_idles_and_is_released(cloud: AirflowSandbox) -> None:
    before = names(cloud)
    filling = [cloud.train("node-long") for _ in range(FIRST)]
    for run in filling:
        cloud.wait_for_attempt(run, bool)
    waiting = cloud.train("whole-node")
    waiting.wait_for_task("place", "deferred")
    cloud.start("scale_node_pools", {})
    assert waiting.wait() == "success"
    (attempt,) = cloud.attempts(waiting)
    (new,) = names(cloud) - before
    assert (attempt.outcome, attempt.node) == (Outcome.SUCCEEDED, new)

    wait_for(lambda: [node.pods for node in pool(cloud).nodes if node.name == new], lambda pods: pods == [0])
    idle_since(cloud, new, datetime.now(UTC) - LONG_AGO)
    cloud.start("scale_node_pools", {})
    wait_for(lambda: names(cloud), lambda left: left == before)
    grown, shrunk = wait_for(
        cloud.services.ledger.scaling_changes, lambda found: [change.asked_at for change in found].count(None) == 0
    )
    assert (grown.before, grown.target.nodes, grown.target.remove) == (FIRST, FIRST + 1, ())
    assert [wish.reason for wish in grown.target.contributions] == ["1 more: for jobs that wait and find no room"]
    assert grown.reached_at is not None
    assert (shrunk.before, shrunk.target.nodes, shrunk.target.remove) == (FIRST + 1, FIRST, (new,))
    assert [wish.reason[:20] for wish in shrunk.target.contributions] == ["1 fewer: idle for 5 "]
    assert {change.actor.partition("/")[0] for change in (grown, shrunk)} == {"scale_node_pools"}
    for run in filling:
        run.mark("train", "failed")
    wait_for(lambda: [node.pods for node in pool(cloud).nodes], lambda pods: not any(pods))


def test_what_is_refused_changes_nothing(cloud: AirflowSandbox) -> None:
    orders, before = cloud.services.ledger.scaling_orders(), names(cloud)
    run = cloud.start("scale_manually", {"pool": PLACE, "action": "shrink", "nodes": 0})
    shown = answer(run, "Reject")
    assert shown["subject"] == f"shrink 0 at {PLACE}?"
    assert f"{PLACE}: {FIRST} -> 0 nodes; leaving: {', '.join(sorted(before))}" in shown["body"]
    assert run.wait() == "success"
    states = run.states()
    assert {states[task] for task in ("order", "scale_now", "taken_up", "effect")} == {"skipped"}
    assert (cloud.services.ledger.scaling_orders(), names(cloud)) == (orders, before)


@pytest.mark.slow
def test_what_nobody_answers_changes_nothing_and_the_run_fails_and_says_so(cloud: AirflowSandbox) -> None:
    orders, before = cloud.services.ledger.scaling_orders(), names(cloud)
    run = cloud.start("scale_manually", {"pool": PLACE, "action": "shrink", "nodes": 0})
    run.wait_for_task("approve", "awaiting_input")
    with closing(sqlite3.connect(cloud.settings.airflow_home / "airflow.db", timeout=60)) as database, database:
        over = "UPDATE task_instance SET trigger_timeout = ? WHERE run_id = ? AND task_id = 'approve'"
        assert database.execute(over, ("2026-01-01 00:00:00.000000", run.run_id)).rowcount == 1
    assert run.wait() == "failed"
    states = run.states()
    assert (states["approve"], run.tasks()["approve"]["try_number"]) == ("failed", 1)
    assert {states[task] for task in ("order", "scale_now", "taken_up", "effect")} == {"upstream_failed"}
    told = run.api.call("GET", f"{run.path}/taskInstances/approve/logs/1?full_content=true")["content"]
    assert "nobody answered in time, and nothing was ordered" in str(told)
    assert (cloud.services.ledger.scaling_orders(), names(cloud)) == (orders, before)


@pytest.mark.slow
def test_nodes_that_are_approved_come_in_time_and_plan_and_effect_are_compared(cloud: AirflowSandbox) -> None:
    run = cloud.start("scale_manually", {"pool": PLACE, "action": "add", "nodes": 1, "hours": 1})
    shown = answer(run, "Approve")
    assert shown["body"] == f"{PLACE}: {FIRST} -> {FIRST + 1} nodes, ready within 10 minutes\ncosts an hour: 32.00"
    assert run.wait() == "success"
    outcome = run.xcom("effect")
    assert (outcome["over"], outcome["as_planned"]) == (True, True)
    (order,) = cloud.services.ledger.scaling_orders()
    assert (order.wanted, order.ordered_by) == (FIRST + 1, "admin, approved by admin")
    assert order.ready_at is not None
    assert f"{FIRST + 1} of {FIRST + 1} nodes ready, all of them 0:" in run.log("effect")
    assert usable_nodes(pool(cloud)) == FIRST + 1
    cloud.services.ledger.withdraw_order(order.order, datetime.now(UTC))


@pytest.mark.slow
def test_a_run_on_a_node_that_leaves_by_force_pauses_and_the_pool_is_empty_in_the_end(cloud: AirflowSandbox) -> None:
    training = cloud.train("node-long")
    attempt = cloud.wait_for_commit(training, step=4)
    shrink = cloud.start("scale_manually", {"pool": PLACE, "action": "shrink", "nodes": 0, "hours": 1})
    assert f"{attempt.run} pauses: lost work 0 s" in answer(shrink, "Approve")["body"]
    assert shrink.wait() == "success"
    outcome = shrink.xcom("effect")
    assert outcome["as_planned"] is True
    assert outcome["lines"][1:] == [f"{attempt.run}: planned: pauses; now: pauses, waits for a place"]
    assert names(cloud) == set()
    first = cloud.services.ledger.attempt(attempt.run, 1)
    assert (first.outcome, first.ending, first.committed_step) == (Outcome.PREEMPTED, "displaced", first.last_step)
    for order in cloud.services.ledger.scaling_orders(datetime.now(UTC)):
        cloud.services.ledger.withdraw_order(order.order, datetime.now(UTC))
    wait_for(lambda: len(cloud.attempts(training)), lambda attempts: attempts == 2)
    training.mark("train", "failed")
    wait_for(lambda: cloud.attempts(training)[-1].outcome)
