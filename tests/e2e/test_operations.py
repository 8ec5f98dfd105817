"""The standing DAGs, started over REST: each does its work, and finds none left when it is repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import pytest
import yaml

from spillway.clouds.base import ATTEMPT_LABEL, INSTALLATION_LABEL, OWNED_LABEL
from spillway.model import PodPhase
from spillway.sandbox.configuration import DATASET_BUCKET, NAMESPACE
from spillway.sandbox.sample_image import REPOSITORY, TAG
from spillway.sandbox.sites import mover_store
from spillway.stores.base import read_all
from spillway.testing.airflow_server import AirflowSandbox, DagRun, wait_for

pytestmark = pytest.mark.timeout(900)

DAGS = ("sync_images", "sync_datasets", "upload_checkpoints", "sweep_orphans")
LETTERS = {f"public/letters/part-{number}.csv": f"{number},a,b,c\n".encode() * 1000 for number in range(3)}
STRAY = "stray-0123456789-1-1"


@pytest.fixture(scope="module")
def trained(airflow: AirflowSandbox) -> DagRun:
    """A run that has trained on the premises, so that there are checkpoints to upload."""
    run = airflow.train("digits")
    assert run.wait() == "success"
    return run


@pytest.fixture(scope="module")
def begun(airflow: AirflowSandbox, trained: DagRun) -> Mapping[str, DagRun]:
    """One run of each; a new dataset is declared and a pod that nobody knows is there before."""
    declare_letters(airflow)
    add_stray_pod(airflow)
    for dag_id in DAGS:
        airflow.api.wait_for_dag(dag_id)
        airflow.api.unpause(dag_id)
    return {dag_id: airflow.start(dag_id, {}) for dag_id in DAGS}


def declare_letters(airflow: AirflowSandbox) -> None:
    store = mover_store(airflow.settings, airflow.settings.site("onprem"), DATASET_BUCKET)
    for key, body in LETTERS.items():
        store.put(key, body, size_bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
    file = airflow.settings.config / "datasets.yaml"
    declared = yaml.safe_load(file.read_text())
    declared["datasets"].append({"name": "letters", "home": "onprem", "prefix": "public/letters/", "tier": "public"})
    partial = file.with_suffix(".partial")
    partial.write_text(yaml.safe_dump(declared))
    partial.replace(file)


def add_stray_pod(airflow: AirflowSandbox) -> None:
    """A pod of this installation that its ledger does not know; no node fits it, so it waits."""
    from kubernetes.client import CoreV1Api

    ours = {OWNED_LABEL: "true", INSTALLATION_LABEL: airflow.services.ledger.installation()}
    CoreV1Api(kubernetes_client(airflow)).create_namespaced_pod(
        NAMESPACE,
        {
            "metadata": {"name": STRAY, "labels": {**ours, ATTEMPT_LABEL: STRAY}},
            "spec": {
                "containers": [{"name": "trainer", "image": "nowhere/none:none"}],
                "nodeSelector": {"no": "node"},
            },
        },
    )


def kubernetes_client(airflow: AirflowSandbox) -> object:
    from kubernetes.config import new_client_from_config

    return new_client_from_config(str(airflow.settings.state / "onprem" / "kubeconfig.json"))


def finished(airflow: AirflowSandbox, dag_id: str) -> tuple[DagRun, ...]:
    """Every run of the DAG so far: its schedule may have added one to those that were started here."""
    runs = airflow.runs(dag_id)
    assert {run.wait() for run in runs} == {"success"}
    return runs


def copied(run: DagRun, task_id: str) -> dict[str, int]:
    """Objects or bytes that each mapped task has moved, by its name in the UI."""
    entries = run.api.call("GET", f"{run.path}/taskInstances?task_id={task_id}&limit=100")["task_instances"]
    found = {}
    for entry in (entry for entry in entries if entry["task_id"] == task_id):
        path = f"{run.path}/taskInstances/{task_id}/xcomEntries/return_value?map_index={entry['map_index']}"
        value = run.api.call("GET", f"{path}&deserialize=true")["value"]
        found[entry["rendered_map_index"]] = value.get("objects_copied", value.get("bytes_copied"))
    return found


def test_datasets_are_synced_once_and_their_assets_are_told(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    assert begun["sync_datasets"].wait() == "success"
    again = airflow.start("sync_datasets", {})

    assert again.wait() == "success"

    moved = [copied(run, "cloud.sync") for run in finished(airflow, "sync_datasets")]
    assert sorted(counts["letters -> cloud"] for counts in moved) == [0] * (len(moved) - 1) + [len(LETTERS)]
    assert copied(again, "cloud.sync") == {"digits -> cloud": 0, "letters -> cloud": 0}
    assert {entry["pool"] for entry in again.instances() if entry["task_id"] == "cloud.sync"} == {"link_cloud"}
    there = mover_store(airflow.settings, airflow.settings.site("cloud"), DATASET_BUCKET)
    assert {key: read_all(there, key) for key in LETTERS} == LETTERS
    events = airflow.api.call("GET", "/assets/events?limit=100")["asset_events"]
    told = [event for event in events if event["uri"] == "spillway://datasets/letters"]
    assert [event["extra"]["site"] for event in told] == ["cloud"]


def test_images_are_mirrored_once_and_a_broken_job_file_stops_nothing(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun]
) -> None:
    assert begun["sync_images"].wait() == "success"
    again = airflow.start("sync_images", {})

    sites = [airflow.services.site(name).registry for name in ("onprem", "cloud")]
    here, there = (registry.resolve(REPOSITORY, TAG) for registry in sites)
    assert here is not None
    assert there == here

    assert again.wait() == "success"
    assert copied(again, "cloud.mirror") == {f"{REPOSITORY}:{TAG} -> cloud": 0}


def test_checkpoints_are_uploaded_to_the_other_site(
    airflow: AirflowSandbox, begun: Mapping[str, DagRun], trained: DagRun
) -> None:
    assert begun["upload_checkpoints"].wait() == "success"

    (attempt,) = airflow.attempts(trained)
    stores = airflow.services.checkpoint_stores(attempt.run)
    heads = [stores[name].head() for name in ("onprem", "cloud")]
    assert [head.step if head else None for head in heads] == [4, 4]
    events = airflow.api.call("GET", "/assets/events?limit=100")["asset_events"]
    told = [event["extra"] for event in events if event["uri"] == f"spillway://checkpoints/{attempt.job.name}"]
    assert [copied["step"] for copied in told if copied["run"] == attempt.run][-1] == 4


def test_a_pod_that_nobody_owns_is_stopped(airflow: AirflowSandbox, begun: Mapping[str, DagRun]) -> None:
    assert begun["sweep_orphans"].wait() == "success"

    (swept,) = [entry for run in finished(airflow, "sweep_orphans") for entry in run.xcom("sweep")]
    assert swept == {
        "cluster": "onprem",
        "attempt": STRAY,
        "remedy": "stopped",
        "reason": "the ledger knows no such attempt",
        "done": True,
    }
    wait_for(lambda: airflow.client("onprem").state(STRAY).phase, lambda phase: phase is PodPhase.GONE)
