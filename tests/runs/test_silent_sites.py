"""A site that does not answer costs the patience of its client once, not for every run and every attempt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spillway.checkpoints.store import CheckpointStore
from spillway.config import Configuration
from spillway.ledger import ledger_opener
from spillway.model import Cluster, Retention, RunPolicy
from spillway.runs import launching
from spillway.runs.replicating import upload_checkpoints
from spillway.runs.retention import apply_retention
from spillway.runs.services import Services, Site
from spillway.testing.builders import attempt, candidate, cloud_cluster, onprem_cluster, placement_policy
from spillway.testing.checkpoints import WatchedStore, commit_step
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import NOW, reserved

RUNS = ("digits-1", "digits-2", "digits-3")


@pytest.fixture
def asked() -> list[str]:
    """What was read of the silent site ``far``."""
    return []


@pytest.fixture
def services(tmp_path: Path, asked: list[str]) -> Services:
    """Three runs on premises that ``cloud`` and ``far`` have a step of; ``far`` is silent by now."""

    def silent(key: str) -> bool:
        asked.append(key)
        return True

    def open_site(cluster: Cluster) -> Site:
        site = folder_sites(tmp_path)(cluster)
        if cluster.name != "far":
            return site
        watched = WatchedStore(site.checkpoints)
        watched.unreadable = silent
        return replace(site, checkpoints=watched)

    url = new_ledger(tmp_path / "ledger.db")
    clusters = {"onprem": onprem_cluster(), "far": cloud_cluster(name="far"), "cloud": cloud_cluster()}
    retention = Retention(last=1, best=0, minimum_age=timedelta(0))
    made = Services(
        configuration=Configuration(
            clusters=clusters, datasets={}, policy=placement_policy(), runs=RunPolicy(), retention=retention
        ),
        open_ledger=ledger_opener(lambda: url),
        open_site=open_site,
        image_uses=tuple,
        clock=lambda: NOW,
    )
    for run in RUNS:
        reserved(made.ledger, run)
        for site in clusters:
            checkpoints = CheckpointStore(folder_sites(tmp_path)(clusters[site]).checkpoints, run)
            checkpoints.fence(1)
            commit_step(checkpoints, 2)
        commit_step(CheckpointStore(made.site("onprem").checkpoints, run), 4)
    return made


def test_it_is_named_for_every_run_and_asked_for_one_while_the_others_are_served(
    services: Services, asked: list[str]
) -> None:
    failed = upload_checkpoints(services, lambda words: None)
    assert [line.split(": ")[:2] for line in failed] == [[run, "onprem -> far"] for run in RUNS]
    assert asked == [f"{RUNS[0]}/HEAD"]
    heads = [CheckpointStore(services.site("cloud").checkpoints, run).head() for run in RUNS]
    assert [head.step if head else None for head in heads] == [4, 4, 4]


def test_a_prune_asks_it_once_too(services: Services, asked: list[str]) -> None:
    failed = apply_retention(services, lambda words: None)
    assert [line.split(": ")[:2] for line in failed] == [[run, "not pruned at far"] for run in RUNS]
    assert asked == [f"{RUNS[0]}/HEAD"]


def test_a_launch_asks_it_once_however_many_attempts_were_there(
    services: Services, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = candidate(cluster="far")
    known = [attempt(run=RUNS[0], number=number, candidate=far, committed_step=2) for number in (1, 2, 3)]
    monkeypatch.setattr(services.ledger, "attempts", lambda run: known)
    assert launching._slowest_flush(services, attempt(run=RUNS[0], number=4)) is None
    assert len(asked) == 1
