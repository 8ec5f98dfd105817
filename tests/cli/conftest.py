"""The command line on the sandbox, called in this process or as one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from spillway.__main__ import main
from spillway.testing.sandbox_server import Installation

INCLUDE = Path(__file__).resolve().parents[2] / "include"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command gave."""

    code: int
    out: str
    err: str


Spillway = Callable[..., Answer]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """A directory with one job file: ``quick``, the digits in six steps."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    declared = yaml.safe_load((INCLUDE / "jobs" / "digits.yaml").read_text())
    declared |= {"name": "quick", "grace": "3s"}
    declared["environment"] |= {
        "SPILLWAY_STEPS": "6",
        "SPILLWAY_CHECKPOINT_EVERY": "2",
        "SPILLWAY_STEP_SECONDS": "0",
    }
    (folder / "quick.yaml").write_text(yaml.safe_dump(declared))
    return folder


@pytest.fixture
def change_job(jobs: Path) -> Callable[..., None]:
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
def start_spillway(installation: Installation, jobs: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
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


def interruptible(argv: list[str], environ: dict[str, str]) -> subprocess.Popen[str]:
    """A process for which SIGINT is not ignored, as it would be where the tests run in the background of a shell."""
    return subprocess.Popen(
        argv,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
