"""Jobs that do not all fit: who waits holds no worker, who resumes needs no second place."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest

from spillway.errors import SpillwayError
from spillway.model import Outcome
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = pytest.mark.timeout(900)
CLOUD_NODES = 2


class Sampler:
    """Counts the whole-node pods that are alive, four times a second, until it is told to stop."""

    def __init__(self, airflow: AirflowSandbox) -> None:
        self.counts: list[int] = []
        self._airflow = airflow
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _sample(self) -> None:
        client = self._airflow.client("cloud")
        while not self._stopped.wait(0.25):
            try:
                pods = client.describe().pods
            except SpillwayError:
                continue
            self.counts.append(sum(1 for pod in pods if str(pod.attempt).startswith("whole-node-")))


@pytest.fixture(scope="module")
def begun(airflow: AirflowSandbox) -> Iterator[tuple[Mapping[str, DagRun], Sampler]]:
    """Three runs for two nodes, and a sampler that has seen all of it."""
    with Sampler(airflow) as sampler:
        yield {name: airflow.train("whole-node") for name in ("a", "b", "c")}, sampler


def test_more_runs_than_nodes_never_have_more_pods_than_nodes(
    airflow: AirflowSandbox, begun: tuple[Mapping[str, DagRun], Sampler]
) -> None:
    runs, sampler = begun
    waiting = wait_for(lambda: [run for run in runs.values() if run.states()["place"] == "deferred"])
    assert len(waiting) == 1
    assert airflow.attempts(waiting[0]) == ()

    assert {run.wait() for run in runs.values()} == {"success"}
    assert max(sampler.counts) == CLOUD_NODES
    assert [attempt.outcome for run in runs.values() for attempt in airflow.attempts(run)] == [Outcome.SUCCEEDED] * 3
    assert waiting[0].tasks()["place"]["try_number"] == 1
    assert "nothing fits now, waiting" in waiting[0].log("place")


def test_what_a_place_needs_waits_in_the_pool_of_its_link_and_in_no_other(
    begun: tuple[Mapping[str, DagRun], Sampler],
) -> None:
    run = begun[0]["a"]
    assert run.wait() == "success"
    tasks = run.tasks()
    staging = {name: (task["state"], task["pool"]) for name, task in tasks.items() if "sync_" in name}
    assert staging == {
        "link_cloud.sync_image": ("success", "link_cloud"),
        "link_cloud.sync_dataset": ("success", "link_cloud"),
        "sync_image": ("skipped", "default_pool"),
        "sync_dataset": ("skipped", "default_pool"),
    }


def test_both_sensors_say_what_they_waited_for(
    airflow: AirflowSandbox, begun: tuple[Mapping[str, DagRun], Sampler]
) -> None:
    watched = begun[0]["a"]
    name = wait_for(lambda: airflow.training_runs(watched))[0]
    run = airflow.start("wait_for_things", {"job": "digits", "run": name, "step": 24})

    assert run.wait() == "success"
    assert run.xcom("capacity") == {"cluster": "onprem", "pool": "gpu", "billing": "owned"}
    assert run.xcom("checkpoint") == 24
