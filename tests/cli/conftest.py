"""The command line on the sandbox, called in this process or as one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from spillway.__main__ import main
from spillway.checkpoints.store import CheckpointStore
from spillway.config import load_job
from spillway.runs.admission import admit
from spillway.runs.services import Services
from spillway.testing.command_line import Answer, RunWithSteps, Spillway, StartSpillway, interruptible
from spillway.testing.disks import small_disk
from spillway.testing.sandbox_server import Installation

INCLUDE = Path(__file__).resolve().parents[2] / "include"


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """What the sandbox's commands set in their process, which is that of later tests here, ends with the test."""
    with patch.dict(os.environ):
        yield


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A directory with one job file, ``quick.yaml``: the digits in six steps, under a name that no other test has."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    declared = yaml.safe_load((INCLUDE / "jobs" / "digits.yaml").read_text())
    declared |= {"name": f"quick-{uuid.uuid4().hex[:6]}", "grace": "3s"}
    declared["environment"] |= {
        "SPILLWAY_STEPS": "6",
        "SPILLWAY_CHECKPOINT_EVERY": "2",
        "SPILLWAY_STEP_SECONDS": "0",
    }
    (folder / "quick.yaml").write_text(yaml.safe_dump(declared))
    return folder


ChangeJob = Callable[..., None]


@pytest.fixture
def change_job(jobs: Path) -> ChangeJob:
    """Changes fields of the job file."""

    def change(**fields: object) -> None:
        file = jobs / "quick.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | fields))

    return change


@pytest.fixture
def spillway(
    installation: Installation, jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Spillway:
    """Runs a command in this process, on the installation of the test."""
    for name, value in environment(installation, jobs).items():
        monkeypatch.setenv(name, value)

    def run(*words: str) -> Answer:
        capsys.readouterr()
        code = main(words)
        shown = capsys.readouterr()
        return Answer(code=code, out=shown.out, err=shown.err)

    return run


@pytest.fixture
def start_spillway(installation: Installation, jobs: Path) -> Iterator[StartSpillway]:
    """Starts a command as a process that a Ctrl-C can reach; ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = interruptible(
            [sys.executable, "-m", "spillway", *words], dict(os.environ) | environment(installation, jobs)
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def environment(installation: Installation, jobs: Path) -> dict[str, str]:
    return {
        "SPILLWAY_CONFIG_DIR": str(installation.config),
        "SPILLWAY_CONNECTIONS": str(installation.connections),
        "SPILLWAY_JOBS_DIR": str(jobs),
        "PYTHONPATH": str(INCLUDE),
    }


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with a few KiB left."""
    with small_disk(tmp_path / "full", "size=64k") as folder:
        yield folder


@pytest.fixture
def disk_of_few_files(tmp_path: Path) -> Iterator[Path]:
    """A file system with room enough, which is full after a few files."""
    with small_disk(tmp_path / "few", "size=2g,nr_inodes=22") as folder:
        yield folder


@pytest.fixture
def run_with_steps(services: Services, jobs: Path) -> RunWithSteps:
    """Opens a run of its own whose first attempt has committed the steps on-prem, some ``hours_ago``."""

    def open_run(*steps: int, hours_ago: float = 0) -> str:
        name = f"quick-{uuid.uuid4().hex[:10]}-1"
        job = load_job(jobs / "quick.yaml", services.configuration.datasets)
        services.ledger.open_run(name, job, {"test": name}, services.clock())
        attempt, _ = admit(services, name, job)
        assert attempt is not None and attempt.candidate.cluster == "onprem"
        store = CheckpointStore(services.site("onprem").checkpoints, name)
        store.fence(1)
        for step in steps:
            store.commit(
                step=step,
                attempt=1,
                world_size=1,
                parts={"weights": f"weights after step {step}".encode()},
                data_cursor={"step": step},
                metrics={},
                now=services.clock() - timedelta(hours=hours_ago),
            )
        return name

    return open_run
