"""How a run ends that does not simply succeed: by its program, by a person, by the platform."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spillway.model import Outcome, PodPhase
from spillway.sandbox import drills
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = pytest.mark.timeout(900)
OVER = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})


@pytest.fixture(scope="module")
def begun(airflow: AirflowSandbox) -> Mapping[str, DagRun]:
    """One run an ending; a pod is evicted and the triggerer is killed while they train."""
    jobs = {"evicted": "interrupted", "watched": "watched", "marked_failed": "endless", "program": "failing"}
    runs = {name: airflow.train(job) for name, job in jobs.items()}
    first = airflow.wait_for_commit(runs["evicted"], step=2)
    drills.evict(airflow.settings, str(airflow.pod(first).node), first.label)
    airflow.wait_for_commit(runs["watched"], step=4)
    # A triggerer that never watched the lost pod has no last lines of it to hand on.
    airflow.wait_for_attempt(runs["evicted"], bool, number=2)
    airflow.wait_restarted("airflow-triggerer", airflow.kill("airflow-triggerer"))
    return runs


def test_an_evicted_pod_is_followed_by_another_in_the_same_try(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    run = begun["evicted"]

    assert run.wait() == "success"
    first, second = airflow.attempts(run)
    assert (first.outcome, second.outcome) == (Outcome.PREEMPTED, Outcome.SUCCEEDED)
    assert "Evicted" in str(first.reason) or "DisruptionTarget" in str(first.reason) or "disrupted" in str(first.reason)
    assert (second.resumed_from_step, second.first_step) == (first.committed_step, first.committed_step + 1)
    assert second.candidate.cluster != first.candidate.cluster
    assert run.tasks()["train"]["try_number"] == 1
    _, heading, kept = run.log("train").partition("last lines of the log of attempt 1's pod:")
    assert heading
    assert '"event": "committed", "step": 2,' in kept


def test_a_restart_of_the_triggerer_leaves_the_pod_alone(airflow: AirflowSandbox, begun: Mapping[str, DagRun]) -> None:
    run = begun["watched"]

    assert run.wait() == "success"
    (only,) = airflow.attempts(run)
    assert (only.outcome, only.first_step, only.last_step) == (Outcome.SUCCEEDED, 1, 100)
    assert run.tasks()["train"]["try_number"] == 1


def test_a_program_that_fails_ends_the_task_at_once_with_its_last_words(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun], capsys: pytest.CaptureFixture[str]
) -> None:
    run = begun["program"]

    assert run.wait() == "failed"
    # Where a test expected another end, its output tells the cause.
    told = capsys.readouterr().out
    assert "--- train, failed, try 1\n" in told and "SPILLWAY_SEED: expected an integer" in told
    assert run.tasks()["train"]["state"] == "failed"
    assert run.tasks()["train"]["try_number"] == 1
    (attempt,) = airflow.attempts(run)
    assert attempt.outcome is Outcome.FAILED
    log = run.log("train")
    assert "SPILLWAY_SEED: expected an integer of at least 0, got 'none'" in log
    assert f"attempt 1 of {attempt.run} failed: the trainer ended with exit code 1" in log


def test_a_task_that_a_person_marks_stops_its_pod_which_flushes_first(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    stopped_by_marking(airflow, begun["marked_failed"], "failed")


@pytest.mark.slow
@pytest.mark.parametrize("state", ["success", "skipped"])
def test_a_task_that_is_marked_otherwise_stops_its_pod_too(state: str, airflow: AirflowSandbox) -> None:
    stopped_by_marking(airflow, airflow.train("endless"), state)


def stopped_by_marking(airflow: AirflowSandbox, run: DagRun, state: str) -> None:
    attempt = airflow.wait_for_attempt(run, lambda a: a.first_step is not None)
    run.wait_for_task("train", "deferred")
    assert airflow.committed(attempt) == ()
    run.mark("train", state)

    settled = airflow.wait_for_attempt(run, lambda a: a.outcome is not None)
    assert airflow.pod(settled).phase in OVER
    assert (settled.outcome, settled.reason) == (Outcome.CANCELLED, "its task was marked or cleared")
    assert airflow.committed(settled) == (settled.committed_step,)
    assert settled.last_step == settled.committed_step
    assert run.tasks()["train"]["state"] == state
    assert len(airflow.attempts(run)) == 1
    # Nothing of it is left to be swept or counted.
    wait_for(
        lambda: [r.attempt for r in airflow.services.ledger.reservations()],
        lambda open_ones: settled.label not in open_ones,
    )
