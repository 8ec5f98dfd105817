"""Processes of Airflow that die while they carry a run: the next one finds the open attempt again."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from spillway.model import AttemptState, Outcome, PodPhase
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OVER = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})


def kill_worker(run: DagRun, task_id: str) -> None:
    """SIGKILL to the processes that carry the task: the worker that supervises it and the task itself."""
    mark = run.tasks()[task_id]["id"].encode()
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and carries(entry, mark)]
    assert found != []
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def carries(process: Path, mark: bytes) -> bool:
    try:
        command = (process / "cmdline").read_bytes()
    except OSError:
        return False
    return command.startswith(b"airflow worker") and mark in command


def one_pod_and_success(airflow: AirflowSandbox, run: DagRun) -> None:
    assert run.wait() == "success"
    (attempt,) = airflow.attempts(run)
    assert (attempt.outcome, attempt.first_step, attempt.last_step) == (Outcome.SUCCEEDED, 1, 240)
    assert len([e for e in airflow.services.ledger.costs() if e.attempt == attempt.label]) == 1


def test_a_worker_that_is_killed_while_it_launches_is_followed_by_one_that_adopts(airflow: AirflowSandbox) -> None:
    run = airflow.train("patient")
    airflow.wait_for_attempt(run, lambda a: a.state in {AttemptState.STAGED, AttemptState.LAUNCHED})
    kill_worker(run, "train")

    one_pod_and_success(airflow, run)
    assert run.tasks()["train"]["try_number"] == 2


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

        def swept() -> bool:
            sweep = airflow.start("sweep_orphans", {})
            assert sweep.wait() == "success"
            return any(entry["pod"] == attempt.label and entry["stopped"] for entry in sweep.xcom("sweep"))

        wait_for(swept)
        wait_for(lambda: airflow.pod(attempt).phase, OVER.__contains__)
    settled = airflow.wait_for_attempt(run, lambda a: a.outcome is not None)
    assert (settled.outcome, settled.reason) == (Outcome.CANCELLED, "its task has ended and its lease is over")
    assert airflow.committed(settled) != ()
