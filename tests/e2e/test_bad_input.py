"""What a person may get wrong in the form, and a dry run: one message, nothing reserved, nothing started."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spillway.errors import SandboxError
from spillway.testing.airflow_server import AirflowSandbox, DagRun

pytestmark = pytest.mark.timeout(900)

BROKEN = {
    "unknown_file": ("digitz", "unknown job file", "Did you mean 'digits'?"),
    "typo_in_the_file": ("typo", "typo.yaml: unknown key 'gpus_per_nod'", "Did you mean 'gpus_per_node'?"),
    "negative_gpus": ("negative-gpus", "negative-gpus.yaml: gpus_per_node: expected a number of at least 0, got -1"),
    "more_gpus_than_exist": (
        "huge",
        "job 'huge' can never be placed: no declared pool can hold it",
        "onprem/gpu/owned",
    ),
}
FOLLOWING = ("sync_image", "sync_dataset", "link_cloud.sync_image", "link_cloud.sync_dataset", "train", "settle")


@pytest.fixture(scope="module")
def begun(airflow: AirflowSandbox) -> Mapping[str, DagRun]:
    """A run for each broken job and a dry run, all under way."""
    runs = {name: airflow.train(job) for name, (job, *_) in BROKEN.items()}
    runs["misspelled"] = airflow.start("train", {"jobb": "digits"})
    return {**runs, "dry": airflow.train("patient", dry_run=True)}


@pytest.mark.parametrize("name", BROKEN)
def test_a_job_that_cannot_run_fails_in_its_first_task_with_one_message(
    name: str, airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    run = begun[name]
    _, *said = BROKEN[name]

    assert run.wait() == "failed"
    assert run.states() == {"place": "failed", **dict.fromkeys(FOLLOWING, "upstream_failed")}
    assert run.tasks()["place"]["try_number"] == 1
    log = run.log("place")
    assert [text for text in said if text not in log] == []
    assert log.count(said[0]) == 1
    assert airflow.attempts(run) == ()


def test_a_misspelled_parameter_starts_no_default_job(airflow: AirflowSandbox, begun: Mapping[str, DagRun]) -> None:
    run = begun["misspelled"]

    assert run.wait() == "failed"
    assert run.tasks()["place"]["try_number"] == 1
    assert "'jobb'; known: dry_run, job, poll_seconds. Did you mean 'job'?" in run.log("place")
    assert airflow.attempts(run) == ()


@pytest.mark.parametrize(
    "conf", [{"job": ""}, {"job": 7}, {"job": "digits", "poll_seconds": 0}], ids=["empty", "number", "no_pause"]
)
def test_a_form_that_its_parameters_refuse_starts_no_run(conf: Mapping[str, object], airflow: AirflowSandbox) -> None:
    before = len(airflow.runs("train"))

    with pytest.raises(SandboxError, match="400"):
        airflow.start("train", conf)

    assert len(airflow.runs("train")) == before


def test_a_dry_run_shows_everything_and_does_nothing(airflow: AirflowSandbox, begun: Mapping[str, DagRun]) -> None:
    run = begun["dry"]

    assert run.wait() == "success"
    assert run.states() == dict.fromkeys(("place", *FOLLOWING), "skipped")
    assert "would run on onprem/gpu (owned)" in run.log("place")
    assert airflow.training_runs(run) == ()
