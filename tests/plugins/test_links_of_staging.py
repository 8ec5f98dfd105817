"""Which of the tasks that bring image and data work for a place, where links have pools of their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from airflow.sdk import DAG, TaskGroup

from spillway.config import Configuration
from spillway.ledger import Ledger
from spillway.model import Attempt, Cluster, Dataset, DatasetUse, Link, RunPolicy
from spillway.runs.services import Services, Site
from spillway.testing.builders import (
    attempt,
    candidate,
    cloud_cluster,
    dataset,
    job_spec,
    onprem_cluster,
    placement_policy,
)
from spillway_airflow import link_pool
from spillway_airflow.operators.staging import StagingOperator, unneeded
from spillway_airflow.operators.sync_dataset import SyncDatasetOperator
from spillway_airflow.training_job import training_job

SLOW = Link(bandwidth_gbps=1)
SITES = {
    "onprem": onprem_cluster(),
    "cloud": cloud_cluster(link=SLOW),
    "paris": cloud_cluster(name="paris", link=Link(bandwidth_gbps=2)),
    "far": cloud_cluster(name="far", link=SLOW),
}
AT_HOME, OF_PARIS = dataset(), dataset(name="synth", home="paris", prefix="synth/")
EVERY = {f"{link}sync_{what}" for link in ("", "link_cloud.", "link_paris.") for what in ("image", "dataset")}


def nothing(*_: object) -> Ledger:
    raise AssertionError("nobody is to be asked which link there is")


def no_site(cluster: Cluster) -> Site:
    raise AssertionError(f"{cluster.name} is not to be opened")


def services(*datasets: Dataset) -> Services:
    configuration = Configuration(
        clusters=SITES, datasets={one.name: one for one in datasets}, policy=placement_policy(), runs=RunPolicy()
    )
    return Services(configuration=configuration, open_ledger=nothing, open_site=no_site, image_uses=tuple)


def placed(cluster: str, *names: str) -> Attempt:
    job = job_spec(datasets=tuple(DatasetUse(name=name) for name in names))
    return attempt(job=job, candidate=candidate(cluster=cluster))


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StagingOperator]]:
    monkeypatch.setenv("SPILLWAY_LINK_POOLS", "cloud,paris")
    with DAG(dag_id="users", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        training_job("digits")
    yield [task for task in dag.tasks if isinstance(task, StagingOperator)]


@pytest.mark.parametrize(
    ("where", "needed"),
    [
        (placed("onprem", "digits"), {"sync_image", "sync_dataset"}),
        (placed("cloud", "digits"), {"link_cloud.sync_image", "link_cloud.sync_dataset"}),
        (placed("far", "digits"), {"sync_image", "sync_dataset"}),
        (placed("cloud"), {"link_cloud.sync_image", "sync_dataset"}),
        (placed("paris", "synth"), {"link_paris.sync_image", "sync_dataset"}),
        (placed("cloud", "digits", "synth"), {"link_cloud.sync_image", "link_cloud.sync_dataset"}),
        (placed("onprem", "digits", "synth"), {"sync_image", "sync_dataset", "link_paris.sync_dataset"}),
    ],
    ids=["at home", "over a link", "without a pool", "no data", "data at home there", "two datasets", "two ways"],
)
def test_only_the_tasks_whose_link_a_place_uses_work(
    tasks: list[StagingOperator], where: Attempt, needed: set[str]
) -> None:
    left_out = unneeded(tasks, EVERY, services(AT_HOME, OF_PARIS), where)
    assert EVERY - {task.task_id for task in left_out} == needed


def test_what_goes_over_a_link_that_only_the_worker_gives_a_pool_is_left_to_the_tasks_that_there_are(
    tasks: list[StagingOperator],
) -> None:
    there = {"sync_image", "sync_dataset", "link_paris.sync_image", "link_paris.sync_dataset"}
    left_out = unneeded(tasks, there, services(AT_HOME), placed("cloud", "digits"))
    assert there - {task.task_id for task in left_out} == {"sync_image", "sync_dataset"}
    assert {task.task_id for task in tasks if task.serves("cloud", there)} == {"sync_image", "sync_dataset"}


@pytest.mark.parametrize("named", ["cloud", "cloud site", "cloud,,fra.1, paris"])
def test_no_name_of_a_link_breaks_a_users_dag_that_has_a_group_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: str
) -> None:
    monkeypatch.setenv("SPILLWAY_LINK_POOLS", named)
    with DAG(dag_id="users", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:
        TaskGroup("cloud")
        training_job("digits")
    known = [link for link in ("cloud", "paris") if link in named.replace(" ", "").split(",")]
    found = {task.link for task in dag.tasks if isinstance(task, SyncDatasetOperator)}
    assert found == {None, *known}
    strange = [name for name in ("cloud site", "fra.1") if name in named]
    told = [record.args for record in caplog.records if record.name == link_pool.__name__]
    assert told == [("SPILLWAY_LINK_POOLS", name) for name in strange]


def test_each_dataset_is_brought_by_the_one_task_of_its_link(tasks: list[StagingOperator]) -> None:
    of_data = [task for task in tasks if isinstance(task, SyncDatasetOperator)]
    for link, task_id in {None: "sync_dataset", "far": "sync_dataset", "paris": "link_paris.sync_dataset"}.items():
        assert [task.task_id for task in of_data if task.serves(link, EVERY)] == [task_id]
