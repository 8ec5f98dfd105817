"""Twenty times one process is killed while training runs go on; every run ends as if nothing had happened.

When which kind of process is killed is shuffled, each kind comes up at least twice; the next one is killed when the
sandbox is whole again.

The seed is printed and can be given: SPILLWAY_CHAOS_SEED=7 make chaos
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from spillway.checkpoints.curve import loss_curve
from spillway.checkpoints.store import CheckpointStore
from spillway.config import job_file, load_job
from spillway.model import Outcome
from spillway.runs.local import local_services
from spillway.runs.services import Services
from spillway.sandbox import lifecycle
from spillway.sandbox.airflow_api import AirflowApi, sandbox_api
from spillway.sandbox.demo.reference import reference_loss
from spillway.sandbox.settings import INCLUDE, SandboxSettings
from spillway.sandbox.supervisor import marked_processes, read_status
from spillway.testing.airflow_server import workers
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import free_settings

Victims = Callable[[SandboxSettings], list[int]]

KILLS = 20
SETTLE_SECONDS = (6.0, 14.0)
APPEAR_SECONDS = 300.0
FINISH_SECONDS = 600.0
OVER = frozenset({"success", "failed"})


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[SandboxSettings]:
    found = free_settings(tmp_path / "sandbox")
    lifecycle.up(found, print, dags=("train",))
    yield found
    lifecycle.down(found, print)
    assert not list(marked_processes(found.state))


def _status(settings: SandboxSettings) -> dict[str, dict[str, object]]:
    status = read_status(settings.state)
    assert status is not None, "the sandbox's supervisor has ended"
    return status


def _is_whole(settings: SandboxSettings) -> bool:
    """Whether every process is back that was killed before."""
    return all(entry["state"] == "ready" for entry in _status(settings).values())


def _supervised(settings: SandboxSettings, *names: str) -> list[int]:
    status = _status(settings)
    return [int(str(status[name]["pid"])) for name in names if status[name]["pid"]]


def _of_each_site(process: str) -> Victims:
    return lambda settings: _supervised(settings, *(f"{site.name}-{process}" for site in settings.sites))


KINDS: dict[str, Victims] = {
    "worker": lambda settings: sorted(workers(settings)),
    "scheduler": lambda settings: _supervised(settings, "airflow-scheduler"),
    "triggerer": lambda settings: _supervised(settings, "airflow-triggerer"),
    "Airflow's API server": lambda settings: _supervised(settings, "airflow-api-server"),
    "Kubernetes API server": _of_each_site("kube-api"),
    "node agent": lambda settings: _supervised(
        settings, *(node.process for site in settings.sites for node in site.nodes)
    ),
    "store": _of_each_site("store"),
}


def _order(chance: random.Random) -> list[str]:
    """Who is killed when: every kind three times, one of them twice."""
    order = list(KINDS) * math.ceil(KILLS / len(KINDS))
    chance.shuffle(order)
    return order[:KILLS]


def test_an_order_has_every_kind_at_least_twice() -> None:
    for seed in range(20):
        order = Counter(_order(random.Random(seed)))
        assert (order.total(), set(order), min(order.values())) == (KILLS, set(KINDS), 2)


@dataclass(kw_only=True)
class Trainings:
    """Runs of ``train``, one after the other."""

    api: AirflowApi
    started: list[str] = field(default_factory=list)

    def keep_one_going(self) -> None:
        """Start the next one where the last one is over."""
        if not self.started or self.api.run_state("train", self.started[-1]) in OVER:
            self.started.append(self.api.trigger("train", {"job": "digits", "poll_seconds": 1}))

    def ends(self) -> dict[str, str]:
        """The final state of each."""
        return {
            run: eventually(
                partial(self.api.run_state, "train", run), OVER.__contains__, seconds=FINISH_SECONDS, pause=2
            )
            for run in self.started
        }


def _kill_one(kind: str, settings: SandboxSettings, trainings: Trainings, chance: random.Random) -> None:
    """Kill a process of the kind, as soon as there is one, while a training goes on."""

    def killed() -> bool:
        trainings.keep_one_going()
        pids = KINDS[kind](settings)
        with contextlib.suppress(ProcessLookupError):
            if pids:
                os.kill(chance.choice(pids), signal.SIGKILL)
                return True
        return False

    eventually(killed, seconds=APPEAR_SECONDS, pause=0.1)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_every_run_ends_well_although_twenty_processes_are_killed(settings: SandboxSettings, tmp_path: Path) -> None:
    seed = int(os.environ.get("SPILLWAY_CHAOS_SEED", str(time.time_ns() % 100000)))
    chance = random.Random(seed)
    print(f"seed {seed}")
    trainings = Trainings(api=sandbox_api(settings, patience_seconds=FINISH_SECONDS))
    for number, kind in enumerate(_order(chance), start=1):
        trainings.keep_one_going()
        time.sleep(chance.uniform(*SETTLE_SECONDS))
        eventually(partial(_is_whole, settings), seconds=APPEAR_SECONDS, pause=0.5)
        _kill_one(kind, settings, trainings, chance)
        print(f"{datetime.now(UTC):%H:%M:%S} kill {number}: {kind}", flush=True)
    assert trainings.ends() == dict.fromkeys(trainings.started, "success")
    services = local_services(settings.config, settings.connections)
    _check_evidence(services, trainings.started, tmp_path / "reference")


def _check_evidence(services: Services, dag_runs: list[str], folder: Path) -> None:
    """One owner at a time, exact resumes, one booking a pod, and the loss of an undisturbed run."""
    folder.mkdir()
    job = load_job(job_file(INCLUDE / "jobs", "digits"), services.configuration.datasets)
    undisturbed = reference_loss(job, folder)
    records = [record for record in services.ledger.runs() if record.origin.get("run_id") in dag_runs]
    assert len(records) == len(dag_runs)
    for record in records:
        attempts = services.ledger.attempts(record.run)
        assert [attempt.outcome for attempt in attempts][-1] is Outcome.SUCCEEDED
        for attempt in attempts:
            begun = attempt.first_step is None or attempt.first_step == (attempt.resumed_from_step or 0) + 1
            assert begun, attempt
        costs = services.ledger.costs(record.run)
        assert len({(entry.cluster, entry.pod_uid) for entry in costs}) == len(costs)
        store = CheckpointStore(services.site(attempts[-1].candidate.cluster).checkpoints, record.run)
        assert loss_curve(store.manifests()) == undisturbed
