"""The tasks of ``upload_checkpoints``: a site that is down does not silence what has arrived at the others."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from spillway.checkpoints.layout import head_key
from spillway.checkpoints.store import CheckpointStore
from spillway.config import Configuration
from spillway.errors import Unreachable
from spillway.ledger import ledger_opener
from spillway.model import Cluster, Retention, RunPolicy
from spillway.runs.services import Services, Site
from spillway.testing.builders import cloud_cluster, onprem_cluster, placement_policy
from spillway.testing.checkpoints import commit_step
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import NOW, reserved
from spillway_airflow import routines
from spillway_airflow.assets import REPLICATED


class Told:
    """The events of an asset alias."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def add(self, asset: Any, extra: Any) -> None:
        self.events.append((asset.uri, extra))


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """A run with a committed step on premises, and two other sites of which ``far`` does not answer."""

    def open_site(cluster: Cluster) -> Site:
        if cluster.name == "far":
            raise Unreachable("far", "no route to host")
        return folder_sites(tmp_path)(cluster)

    url = new_ledger(tmp_path / "ledger.db")
    clusters = {"onprem": onprem_cluster(), "far": cloud_cluster(name="far"), "cloud": cloud_cluster()}
    made = Services(
        configuration=Configuration(clusters=clusters, datasets={}, policy=placement_policy(), runs=RunPolicy()),
        open_ledger=ledger_opener(lambda: url),
        open_site=open_site,
        image_uses=tuple,
        clock=lambda: NOW,
    )
    run = reserved(made.ledger, "digits-1").run
    checkpoints = CheckpointStore(made.site("onprem").checkpoints, run)
    checkpoints.fence(1)
    commit_step(checkpoints, 2)
    monkeypatch.setattr(routines, "worker_services", lambda: made)
    return made


def in_dag_run(monkeypatch: pytest.MonkeyPatch, *tasks: str) -> Told:
    """The routine as a task ``replicate`` of a DAG run that has these tasks; gives what it tells."""
    events: dict[Any, Told] = defaultdict(Told)
    states = {"monday": dict.fromkeys(tasks)}
    ti = SimpleNamespace(
        dag_id="upload_checkpoints", run_id="monday", task_id="replicate", get_task_states=lambda **_: states
    )
    asked = {"dag": SimpleNamespace(params={}), "dag_run": SimpleNamespace(conf=None)}
    monkeypatch.setattr(routines, "get_current_context", lambda: {"outlet_events": events, "ti": ti, **asked})
    return events[REPLICATED]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return in_dag_run(monkeypatch, "replicate", "prune")


@pytest.mark.usefixtures("services")
def test_what_arrived_is_told_by_a_task_that_succeeds_and_the_site_that_is_down_fails_the_next_one(told: Told) -> None:
    failed = json.loads(json.dumps(routines.run_upload(None, dry_run=False, say=print)))
    size_bytes = len("weights of step 2")
    event = {"job": "digits", "run": "digits-1", "site": "cloud", "step": 2, "metrics": {"loss": 0.5}}
    assert json.loads(json.dumps(told.events)) == [
        ["spillway://checkpoints/digits", event | {"steps_copied": 1, "bytes_copied": size_bytes}]
    ]
    with pytest.raises(AirflowFailException, match="digits-1: onprem -> far: far is unreachable: no route to host"):
        routines.require_upload(failed)


def test_where_every_site_answers_the_upload_is_complete(
    services: Services, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = {name: cluster for name, cluster in services.configuration.clusters.items() if name != "far"}
    alive = replace(services, configuration=replace(services.configuration, clusters=two))
    monkeypatch.setattr(routines, "worker_services", lambda: alive)
    failed = routines.run_upload(None, dry_run=False, say=print)
    routines.require_upload(failed)
    assert (failed, len(told.events)) == ([], 1)


def test_a_prune_goes_by_the_declared_rules_and_tells_the_site_that_it_left_alone(
    services: Services, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = CheckpointStore(services.site("onprem").checkpoints, "digits-1")
    commit_step(checkpoints, 4)
    services.site("cloud").checkpoints.put(head_key("digits-1"), b"damaged", size_bytes=7)
    last = Retention(last=1, best=0, minimum_age=timedelta(0))
    ruled = replace(services, configuration=replace(services.configuration, retention=last))
    monkeypatch.setattr(routines, "worker_services", lambda: ruled)
    said: list[str] = []
    routines.run_prune(dry_run=True, say=said.append)
    assert any("at onprem: would be: steps 2 taken out of use" in line for line in said)
    assert [manifest.step for manifest in checkpoints.manifests()] == [2, 4]
    (failed,) = routines.run_prune(dry_run=False, say=print)
    assert failed.startswith("digits-1: not pruned at cloud: ")
    assert [manifest.step for manifest in checkpoints.manifests()] == [4]


@pytest.mark.usefixtures("services")
def test_what_goes_over_a_link_with_a_pool_is_left_to_its_task_and_a_pool_of_no_cluster_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_dag_run(monkeypatch, "far.replicate", "replicate", "prune")
    assert routines.run_upload(None, dry_run=False, say=print) == []
    (failed,) = routines.run_upload("far", dry_run=False, say=print)
    assert failed.startswith("digits-1: onprem -> far: ")
    in_dag_run(monkeypatch, "fra.replicate", "replicate")
    with pytest.raises(AirflowFailException, match=r"unknown cluster 'fra'; known: .* Did you mean 'far'\?"):
        routines.run_upload(None, dry_run=False, say=print)


@pytest.mark.usefixtures("services")
def test_a_pool_that_only_the_worker_knows_of_takes_nothing_away_from_the_tasks_that_there_are(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPILLWAY_LINK_POOLS", "cloud")
    routines.run_upload(None, dry_run=False, say=print)
    assert [extra["site"] for _, extra in told.events] == ["cloud"]


def test_a_dry_run_says_what_would_be_copied_and_copies_and_tells_nothing(services: Services, told: Told) -> None:
    said: list[str] = []
    (failed,) = routines.run_upload(None, dry_run=True, say=said.append)
    assert failed.startswith("digits-1: onprem -> far: far is unreachable")
    assert "run digits-1: would copy steps 2 from onprem to cloud" in said
    assert (list(services.site("cloud").checkpoints.list()), told.events) == ([], [])
    routines.run_upload(None, dry_run=False, say=print)
    routines.run_upload(None, dry_run=True, say=said.append)
    assert said[-1] == "run digits-1: would copy nothing from onprem to cloud"
