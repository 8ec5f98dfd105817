"""The sensor of checkpoints: which of the steps at several sites counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spillway.checkpoints.progress import Progress, write_progress
from spillway.checkpoints.store import CheckpointStore
from spillway.config import Configuration
from spillway.errors import Unreachable
from spillway.ledger import ledger_opener
from spillway.model import Cluster, Outcome, RunPolicy
from spillway.runs.services import Services, Site
from spillway.testing.builders import candidate, cloud_cluster, job_spec, onprem_cluster, placement_policy
from spillway.testing.checkpoints import commit_step
from spillway.testing.folder_sites import folder_sites
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import NOW, counting, reserve
from spillway.testing.watched import Log
from spillway_airflow.sensors import checkpoint
from spillway_airflow.sensors.checkpoint import CheckpointSensor

RUN = "digits-1"


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Two sites."""
    url = new_ledger(tmp_path / "ledger.db")
    clusters = {"onprem": onprem_cluster(), "cloud": cloud_cluster()}
    made = Services(
        configuration=Configuration(clusters=clusters, datasets={}, policy=placement_policy(), runs=RunPolicy()),
        open_ledger=ledger_opener(lambda: url),
        open_site=folder_sites(tmp_path),
        image_uses=tuple,
    )
    monkeypatch.setattr(checkpoint, "worker_services", lambda: made)
    return made


def commit(services: Services, site: str, attempt: int, *steps: int) -> None:
    checkpoints = CheckpointStore(services.site(site).checkpoints, RUN)
    checkpoints.fence(attempt)
    for step in steps:
        commit_step(checkpoints, step, attempt=attempt)


class Memory(dict[str, Any]):
    """The store that Airflow keeps for a task, over its pokes."""

    def set(self, key: str, value: Any, **_: Any) -> None:
        self[key] = value


def poke(step: int, memory: Memory | None = None) -> tuple[bool, object]:
    context: Any = {"task_state_store": Memory() if memory is None else memory}
    found = CheckpointSensor(task_id="wait", training_run=RUN, step=step).poke(context)
    return found.is_done, found.xcom_value


@pytest.mark.usefixtures("services")
def test_nothing_is_there_before_the_first_commit() -> None:
    assert poke(1) == (False, None)


def test_a_branch_that_was_given_up_does_not_count(services: Services) -> None:
    commit(services, "onprem", 1, 4, 8)
    assert poke(8) == (True, 8)
    commit(services, "cloud", 2, 5)
    assert poke(8) == (False, 5)
    commit(services, "cloud", 2, 8)
    assert poke(8) == (True, 8)


def attempts_at(services: Services, *sites: str) -> None:
    """The run's attempts, each at its site; all but the last one have ended."""
    for site in sites:
        decide = counting(job_spec(), capacity=10**6, place=candidate(cluster=site))
        attempt, _ = reserve(services.ledger, RUN, decide=decide)
        assert attempt is not None
        if site != sites[-1]:
            services.ledger.settle(attempt, Outcome.STALLED, "on purpose", NOW)


def silence(services: Services, site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_site(cluster: Cluster) -> Site:
        if cluster.name == site:
            raise Unreachable(site, "silent on purpose")
        return services.open_site(cluster)

    silent = replace(services, open_site=open_site)
    silent.forget(site)
    monkeypatch.setattr(checkpoint, "worker_services", lambda: silent)


def test_a_step_that_a_silent_site_may_have_given_up_does_not_count_yet(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts_at(services, "onprem", "cloud")
    commit(services, "onprem", 1, 4, 8)
    commit(services, "cloud", 2, 5)
    silence(services, "cloud", monkeypatch)
    assert poke(8) == (False, 8)


def test_the_silence_of_a_site_that_has_not_the_newest_attempt_is_no_matter(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts_at(services, "onprem", "cloud")
    commit(services, "cloud", 2, 8)
    silence(services, "onprem", monkeypatch)
    assert poke(8) == (True, 8)


def test_a_poke_says_how_far_the_owner_of_the_run_is_and_the_next_one_only_what_is_new(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, memory = Log(), Memory()
    monkeypatch.setattr(CheckpointSensor, "log", log)
    commit(services, "onprem", 1, 4)
    commit(services, "cloud", 2, 5)
    old = Progress(first_step=1, step=7, total_steps=60, loss=0.9, at="")
    now = Progress(first_step=5, step=6, total_steps=60, loss=0.5, at="", durable_step=5, step_seconds=2.0)
    write_progress(services.site("onprem").checkpoints, RUN, 1, old)
    write_progress(services.site("cloud").checkpoints, RUN, 2, now)

    for _ in range(3):
        poke(8, memory)
    write_progress(services.site("cloud").checkpoints, RUN, 2, replace(now, step=7))
    poke(8, memory)

    told = (
        "newest committed step of digits-1: 5; step {} of 60, loss 0.5, step 5 committed, about {} left at 2 s a step"
    )
    assert log.lines == [told.format(6, "1 min 48 s"), told.format(7, "1 min 46 s")]
