"""A run that is moved from the form while its own DAG run goes on: its task carries it, ``migrate_job`` only orders."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from spillway.model import MoveState, Outcome
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def begun(airflow: AirflowSandbox) -> Mapping[str, DagRun]:
    """A run that trains, and the orders for it: a dry one, a real one, and one for a run that nobody knows."""
    # Tests before this one have made on-premises lose pods, and the run is to begin there.
    wait_for(lambda: airflow.services.ledger.cool_downs(datetime.now(UTC)), lambda resting: not resting)
    trained = airflow.train("patient")
    airflow.api.wait_for_dag("migrate_job")
    airflow.api.unpause("migrate_job")
    name = airflow.wait_for_commit(trained, step=4).run
    dry = airflow.start("migrate_job", {"run": name, "target": "cloud", "dry_run": True})
    unknown = airflow.start("migrate_job", {"run": f"{name}x", "target": "cloud"})
    assert dry.wait() == "success"
    moved = airflow.start("migrate_job", {"run": name, "target": "cloud", "reason": "maintenance"})
    return {"trained": trained, "dry": dry, "unknown": unknown, "moved": moved}


def test_the_task_of_the_run_carries_it_to_the_target_within_one_try(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    trained, moved = begun["trained"], begun["moved"]

    assert moved.wait() == "success"
    told = moved.xcom("first_step")
    assert (told["state"], told["attempt"], told["to_attempt"]) == (MoveState.DONE, 1, 2)
    assert trained.wait() == "success"
    first, second = airflow.attempts(trained)
    assert (first.outcome, second.outcome) == (Outcome.MIGRATED, Outcome.SUCCEEDED)
    assert (first.candidate.cluster, second.candidate.cluster) == ("onprem", "cloud")
    assert first.last_step == first.committed_step == second.resumed_from_step
    assert (second.first_step, second.last_step) == (told["resumed_step"], 240)
    assert trained.tasks()["train"]["try_number"] == 1
    assert "last lines of the log of attempt 1's pod" in trained.log("train")
    assert "move 1: attempt 1 -> cloud/gpu/on-demand (maintenance): done" in trained.log("settle")
    booked = [cost.attempt for cost in airflow.services.ledger.costs(first.run)]
    assert booked == [first.label, second.label]


def test_an_order_that_is_cleared_when_it_was_carried_out_changes_nothing(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    moved = begun["moved"]
    assert moved.wait() == "success"
    run = airflow.attempts(begun["trained"])[0].run
    before = airflow.services.ledger.moves(run)
    moved.clear()
    wait_for(lambda: moved.tasks()["order"]["try_number"], lambda number: number == 2)
    assert moved.wait() == "success"
    assert airflow.services.ledger.moves(run) == before


def test_a_dry_run_shows_estimate_and_advice_and_orders_nothing(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    dry = begun["dry"]
    assert dry.states() == {"order": "skipped", "first_step": "skipped"}
    log = dry.log("order")
    assert all(part in log for part in ("would move", "estimate: ", "advice: "))
    (attempt, *_) = airflow.attempts(begun["trained"])
    assert [move.reason for move in airflow.services.ledger.moves(attempt.run)] == ["maintenance"]


def test_an_order_for_a_run_that_nobody_knows_fails_at_once_and_names_those_that_there_are(
    begun: Mapping[str, DagRun],
) -> None:
    unknown = begun["unknown"]
    assert unknown.wait() == "failed"
    assert unknown.tasks()["order"]["try_number"] == 1
    assert "unknown run" in unknown.log("order")
