"""Twenty single processes are killed while training runs go on; every run ends as if nothing had happened.

The seed is printed and can be given: SPILLWAY_CHAOS_SEED=7 make chaos
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
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
from spillway.sandbox.settings import INCLUDE, SandboxSettings, sandbox_settings
from spillway.sandbox.supervisor import marked_processes, read_status
from spillway.testing.processes import free_ports

KILLS = 20
SETTLE_SECONDS = (6.0, 14.0)
FINISH_SECONDS = 600.0


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[SandboxSettings]:
    base_port = free_ports(1)[0] // 1000 * 1000
    found = sandbox_settings(tmp_path / "sandbox", base_port)
    lifecycle.up(found, print, dags=("train",))
    yield found
    lifecycle.down(found, print)
    assert not list(marked_processes(found.state))


def _supervised(settings: SandboxSettings, name: str) -> int | None:
    pid = (read_status(settings.state) or {}).get(name, {}).get("pid")
    return pid if isinstance(pid, int) else None


def _worker(settings: SandboxSettings) -> int | None:
    """A process that carries a task right now."""
    for pid in marked_processes(settings.state):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if b"task supervisor" in command or b"LocalExecutor" in command or b"executor -- " in command:
            return pid
    return None


def _victims(settings: SandboxSettings) -> dict[str, int | None]:
    sites = [site.name for site in settings.sites]
    nodes = [node.process for site in settings.sites for node in site.nodes]
    kinds = {
        "worker": [_worker(settings)],
        "scheduler": [_supervised(settings, "airflow-scheduler")],
        "triggerer": [_supervised(settings, "airflow-triggerer")],
        "airflow-api": [_supervised(settings, "airflow-api-server")],
        "kube-api": [_supervised(settings, f"{site}-kube-api") for site in sites],
        "node": [_supervised(settings, node) for node in nodes],
        "store": [_supervised(settings, f"{site}-store") for site in sites],
    }
    return {kind: random.choice([pid for pid in pids if pid] or [None]) for kind, pids in kinds.items()}


def _kill_one(settings: SandboxSettings) -> str | None:
    kind, pid = random.choice([(k, p) for k, p in _victims(settings).items() if p is not None])
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return kind


def _in_flight(api: AirflowApi, runs: list[str]) -> bool:
    return bool(runs) and api.run_state("train", runs[-1]) in ("queued", "running")


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_every_run_ends_well_although_twenty_processes_are_killed(settings: SandboxSettings, tmp_path: Path) -> None:
    seed = int(os.environ.get("SPILLWAY_CHAOS_SEED", str(time.time_ns() % 100000)))
    random.seed(seed)
    print(f"seed {seed}")
    api, services = sandbox_api(settings), local_services(settings.config, settings.connections)
    runs: list[str] = []
    for number in range(1, KILLS + 1):
        if not _in_flight(api, runs):
            runs.append(api.trigger("train", {"job": "digits", "poll_seconds": 1}))
        time.sleep(random.uniform(*SETTLE_SECONDS))
        kind = None
        while kind is None:
            kind = _kill_one(settings)
        print(f"kill {number}: {kind}")
    deadline = time.monotonic() + FINISH_SECONDS
    states = dict.fromkeys(runs, "queued")
    while any(state in ("queued", "running") for state in states.values()) and time.monotonic() < deadline:
        time.sleep(2)
        states = {run: api.run_state("train", run) for run in runs}
    assert states == dict.fromkeys(runs, "success")
    _check_evidence(services, runs, tmp_path / "reference")


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
