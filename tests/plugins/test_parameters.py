"""A misspelled parameter is refused by the first task: Airflow itself would go on with the default."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException

from spillway.errors import UnknownName
from spillway_airflow import routines
from spillway_airflow.operators.place_job import PlaceJobOperator
from spillway_airflow.parameters import refuse_unknown_parameters

DRY_RUN = {"dry_run": Param(False, type="boolean")}
JOB = {"job": Param("digits", type="string"), **DRY_RUN}


def started(conf: Mapping[str, Any] | None, params: Mapping[str, Any]) -> Any:
    """The context of a task whose DAG declares the parameters."""
    dag = DAG("train", schedule=None, params=dict(params))
    return {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "ti": None}


def place(context: Any) -> None:
    PlaceJobOperator(task_id="place", job="digits").execute(context)


FIRST_TASKS: Mapping[str, Callable[[Any], object]] = {
    "place": place,
    "sweep": lambda _: routines.run_sweep(dry_run=False, say=print),
    "upload": lambda _: routines.run_upload(None, dry_run=False, say=print),
    "prune": lambda _: routines.run_prune(dry_run=False, say=print),
    "image routes": lambda _: routines.find_image_routes(None),
    "dataset routes": lambda _: routines.find_dataset_routes(None),
    "repository routes": lambda _: routines.find_repository_routes(None),
}


@pytest.mark.parametrize("task", FIRST_TASKS)
def test_the_first_task_of_a_dag_names_the_parameter_and_those_that_there_are(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = started({"jobb": "other"}, JOB)
    monkeypatch.setattr(routines, "get_current_context", lambda: context)

    with pytest.raises(AirflowFailException) as refused:
        FIRST_TASKS[task](context)

    said = "unknown parameter of DAG 'train' 'jobb'; known: dry_run, job. Did you mean 'job'?"
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("conf", "params"),
    [(None, JOB), ({}, JOB), ({"job": "other"}, JOB), ({"mine": 1}, {})],
    ids=["none", "empty", "declared", "a DAG that declares none"],
)
def test_what_is_declared_is_accepted(conf: Mapping[str, Any] | None, params: Mapping[str, Any]) -> None:
    refuse_unknown_parameters(started(conf, params))


def test_a_misspelled_dry_run_is_refused() -> None:
    with pytest.raises(UnknownName, match="'dryrun'"):
        refuse_unknown_parameters(started({"dryrun": True}, DRY_RUN))
