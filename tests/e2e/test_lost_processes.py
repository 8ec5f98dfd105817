"""Processes of Airflow that die while they carry a run: the next one finds the open attempt again."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from spillway.model import AttemptState, Outcome, PodPhase, VerdictKind
from spillway.runs.settling import Ended, settle
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for, workers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OVER = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})


def kill_worker(airflow: AirflowSandbox, run: DagRun, task_id: str) -> None:
    """SIGKILL to the processes that carry the task: the worker that supervises it and the task itself."""
    found = workers(airflow.settings, run.tasks()[task_id]["id"])
    assert len(found) == 2
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def one_pod_and_success(airflow: AirflowSandbox, run: DagRun) -> None:
    assert run.wait() == "success"
    (attempt,) = airflow.attempts(run)
    assert (attempt.outcome, attempt.first_step, attempt.last_step) == (Outcome.SUCCEEDED, 1, 240)
    assert len([e for e in airflow.services.ledger.costs() if e.attempt == attempt.label]) == 1


def test_a_worker_that_is_killed_while_it_launches_is_followed_by_one_that_adopts(airflow: AirflowSandbox) -> None:
    run = airflow.train("patient")
    airflow.wait_for_attempt(run, lambda a: a.state in {AttemptState.STAGED, AttemptState.LAUNCHED})
    kill_worker(airflow, run, "train")

    one_pod_and_success(airflow, run)
    assert run.tasks()["train"]["try_number"] == 2


def test_a_program_that_failed_is_not_started_again_because_its_worker_was_lost_but_when_somebody_clears_it(
    airflow: AirflowSandbox,
) -> None:
    run = airflow.train("failing")
    attempt = airflow.wait_for_attempt(run, lambda a: a.state in {AttemptState.STAGED, AttemptState.LAUNCHED})
    kill_worker(airflow, run, "train")
    # Its last act: had it lived a moment longer it would have told Airflow too.
    settle(airflow.services, attempt, Ended(kind=VerdictKind.PROGRAM_ERROR, reason="exit code 1"))

    assert run.wait() == "failed"
    assert run.tasks()["train"]["try_number"] == 2
    assert [a.outcome for a in airflow.attempts(run)] == [Outcome.FAILED]
    run.clear("train")

    airflow.wait_for_attempt(run, lambda a: a.outcome is Outcome.FAILED, number=2)
    assert run.wait() == "failed"
    assert len(airflow.attempts(run)) == 2


def test_a_scheduler_that_is_killed_is_followed_by_one_that_goes_on(airflow: AirflowSandbox) -> None:
    run = airflow.train("patient")
    airflow.wait_for_commit(run, step=4)
    killed = airflow.kill("airflow-scheduler")
    airflow.wait_restarted("airflow-scheduler", killed)

    one_pod_and_success(airflow, run)


def test_an_api_of_a_cluster_that_restarts_is_waited_for(airflow: AirflowSandbox) -> None:
    run = airflow.train("patient")
    attempt = airflow.wait_for_commit(run, step=4)
    process = f"{attempt.candidate.cluster}-kube-api"
    airflow.wait_restarted(process, airflow.kill(process))

    one_pod_and_success(airflow, run)
    assert run.tasks()["train"]["try_number"] == 1


def test_a_task_that_is_marked_while_the_triggerer_is_down_leaves_a_pod_that_is_swept(airflow: AirflowSandbox) -> None:
    airflow.api.wait_for_dag("sweep_orphans")
    airflow.api.unpause("sweep_orphans")
    run = airflow.train("endless")
    attempt = airflow.wait_for_attempt(run, lambda a: a.first_step is not None)
    run.wait_for_task("train", "deferred")
    with airflow.held("airflow-triggerer"):
        run.mark("train", "failed")
        assert run.wait() == "failed"
        assert airflow.pod(attempt).phase is PodPhase.RUNNING

        def swept() -> list[str]:
            sweep = airflow.start("sweep_orphans", {})
            assert sweep.wait() == "success"
            return [entry["remedy"] for entry in sweep.xcom("sweep") if entry["attempt"] == attempt.label]

        wait_for(swept, lambda remedies: "stopped" in remedies)
        wait_for(lambda: airflow.pod(attempt).phase, OVER.__contains__)
        wait_for(swept, lambda remedies: "expired" in remedies)
    settled = airflow.wait_for_attempt(run, lambda a: a.outcome is not None)
    assert settled.outcome is Outcome.CANCELLED
    assert str(settled.reason).startswith("its task has ended and its lease is over")
    assert airflow.committed(settled) != ()
