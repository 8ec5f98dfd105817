"""The pipeline in every way that Airflow can start it, or start it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from spillway.codec import encode
from spillway.model import AttemptState, Outcome
from spillway.sandbox.airflow_api import Conflict
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = pytest.mark.timeout(900)


def scheduled(airflow: AirflowSandbox) -> DagRun:
    """A DAG that is let run gets the run of its last whole day at once."""
    airflow.api.wait_for_dag("train_nightly")
    airflow.api.unpause("train_nightly")
    return _first_of_type(airflow, "train_nightly", "scheduled")


def from_the_form(airflow: AirflowSandbox) -> DagRun:
    return airflow.start("train", {"job": "digits", "poll_seconds": 1}, logical_date=datetime.now(UTC).isoformat())


def over_rest_without_date(airflow: AirflowSandbox) -> DagRun:
    return airflow.start("train", {"job": "digits.yaml", "poll_seconds": 1}, logical_date=None)


def by_its_dataset(airflow: AirflowSandbox) -> DagRun:
    airflow.api.wait_for_dag("train_on_new_data")
    airflow.api.unpause("train_on_new_data")
    assets = airflow.api.call("GET", "/assets?uri_pattern=spillway://datasets/digits")["assets"]
    airflow.api.call("POST", "/assets/events", {"asset_id": assets[0]["id"], "extra": {"site": "cloud"}})
    return _first_of_type(airflow, "train_on_new_data", "asset_triggered")


def as_backfill(airflow: AirflowSandbox) -> DagRun:
    airflow.api.wait_for_dag("train_nightly")
    airflow.api.unpause("train_nightly")
    day = {"from_date": "2026-01-05T00:00:00Z", "to_date": "2026-01-05T23:59:59Z"}
    window = {"dag_id": "train_nightly", **day, "reprocess_behavior": "none", "max_active_runs": 1}
    # A request whose answer was lost is repeated, and refused because the first one did its work.
    with suppress(Conflict):
        airflow.api.call("POST", "/backfills", window)
    return _first_of_type(airflow, "train_nightly", "backfill")


WAYS: Mapping[str, Callable[[AirflowSandbox], DagRun]] = {
    way.__name__: way for way in (scheduled, from_the_form, over_rest_without_date, by_its_dataset, as_backfill)
}


def _first_of_type(airflow: AirflowSandbox, dag_id: str, run_type: str) -> DagRun:
    found = wait_for(lambda: [run for run in airflow.runs(dag_id) if run.facts()["run_type"] == run_type])
    return found[0]


@pytest.fixture(scope="module")
def begun(airflow: AirflowSandbox) -> Mapping[str, DagRun]:
    """One run a way, all under way, and one that is cleared while it trains."""
    cleared = airflow.train("interrupted")
    runs = {name: start(airflow) for name, start in WAYS.items()}
    airflow.wait_for_commit(cleared, step=2)
    cleared.clear("train")
    return {**runs, "cleared_while_it_trains": cleared}


@pytest.mark.parametrize("way", WAYS)
def test_the_pipeline_runs_when_started(way: str, airflow: AirflowSandbox, begun: Mapping[str, DagRun]) -> None:
    run = begun[way]

    assert run.wait() == "success"
    (attempt,) = airflow.attempts(run)
    staging = [{f"{link}sync_image", f"{link}sync_dataset"} for link in ("", "link_cloud.")]
    used, unused = staging if attempt.candidate.cluster == "onprem" else reversed(staging)
    done = dict.fromkeys({"place", *used, "train", "settle"}, "success")
    assert run.states() == {**done, **dict.fromkeys(unused, "skipped")}
    assert (attempt.state, attempt.outcome, attempt.last_step) == (AttemptState.SETTLED, Outcome.SUCCEEDED, 4)
    # Airflow 3.3 takes a task that resumes before its executor has told of the deferral for a killed one, and tries it
    # again (apache/airflow#71580); these pods end within a second. The attempt is the same one all the same.
    assert run.tasks()["train"]["try_number"] in {1, 2}


def test_a_run_that_is_cleared_while_it_trains_goes_on_from_what_it_flushed(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    run = begun["cleared_while_it_trains"]

    assert run.wait() == "success"
    first, second = airflow.attempts(run)
    assert first.run == second.run
    assert (first.outcome, second.outcome) == (Outcome.CANCELLED, Outcome.SUCCEEDED)
    assert second.resumed_from_step == first.committed_step
    assert second.first_step == first.committed_step + 1
    assert second.last_step == 60
    assert first.ended_at is not None and second.started_at is not None
    assert first.ended_at <= second.started_at


def test_a_whole_run_that_is_cleared_after_its_success_trains_again(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    run = begun["over_rest_without_date"]
    assert run.wait() == "success"
    run.clear()
    wait_for(lambda: len(airflow.training_runs(run)), lambda count: count == 2)

    assert run.wait() == "success"
    old, new = airflow.attempts(run)
    assert new.run == f"{old.run.removesuffix('-1')}-2"
    assert (new.resumed_from_step, new.first_step, new.last_step) == (None, 1, 4)
    assert new.pod_uid != old.pod_uid


def test_the_decision_is_in_the_log_and_in_xcom(airflow: AirflowSandbox, begun: Mapping[str, DagRun]) -> None:
    run = begun["from_the_form"]
    assert run.wait() == "success"
    (attempt,) = airflow.attempts(run)

    placed = run.xcom("place")
    assert (placed["run"], placed["attempt"]) == (attempt.run, 1)
    assert placed["candidate"] == placed["decision"]["chosen"] == encode(attempt.candidate)
    log = run.log("place")
    assert all(part in log for part in ("placed on", "onprem/gpu/owned", "cloud/gpu/on-demand", "cloud/gpu/spot"))


def test_the_lines_of_the_pod_are_in_the_log_of_the_task(airflow: AirflowSandbox, begun: Mapping[str, DagRun]) -> None:
    run = begun["from_the_form"]
    assert run.wait() == "success"

    log = run.log("train")
    for step in (1, 2, 3, 4):
        assert log.count(f'"event": "step", "step": {step},') == 1


def test_repeating_the_last_tasks_of_a_finished_run_changes_nothing(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    run = begun["from_the_form"]
    assert run.wait() == "success"
    attempts = airflow.attempts(run)
    costs = airflow.services.ledger.costs()
    mine = [entry for entry in costs if entry.attempt == attempts[0].label]
    run.clear("sync_image", "sync_dataset")

    wait_for(lambda: run.tasks()["settle"]["try_number"], lambda number: number == 2)
    assert run.wait() == "success"
    assert airflow.attempts(run) == attempts
    assert [e for e in airflow.services.ledger.costs() if e.attempt == attempts[0].label] == mine
    assert len(mine) == 1
