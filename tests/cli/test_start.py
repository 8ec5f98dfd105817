"""A command starts with what it needs: a small question should not wait for libraries that answer large ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from spillway.__main__ import COMMANDS
from spillway.runs.services import Services
from spillway.testing.command_line import Spillway, interruptible
from spillway.testing.images import put_image
from spillway.testing.sandbox_server import Installation

INCLUDE = Path(__file__).resolve().parents[2] / "include"
HEAVY = {
    "airflow",
    "asyncio",
    "boto3",
    "botocore",
    "kubernetes",
    "pandas",
    "pydantic",
    "rich",
    "sqlalchemy",
    "urllib3",
    "yaml",
}
"""Libraries that take a noticeable part of a second to load."""
PROGRAM = """
import sys
from spillway.__main__ import main
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


def loaded(*words: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "PYTHONPATH": str(INCLUDE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "spillway.__main__" in done.stderr.split(), done.stderr
    return set(done.stderr.split())


BLOCKED_IMPORT = """
import time
print("importing", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("module", ["argparse", "decimal"])
def test_a_ctrl_c_during_an_import_ends_without_a_traceback(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(BLOCKED_IMPORT)
    argv = [sys.executable, "-m", "spillway", "sync", "digits", "cloud"]
    with interruptible(argv, {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{INCLUDE}"}) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert (process.wait(60), "Traceback" in said) == (130, False), said


WORDS = [(), *((name,) for name in COMMANDS)]


@pytest.mark.parametrize("words", WORDS, ids="".join)
def test_help_loads_no_heavy_library(words: Sequence[str]) -> None:
    assert not loaded(*words, "--help") & HEAVY


@pytest.mark.parametrize("words", WORDS, ids="".join)
def test_help_loads_the_words_of_no_other_command(words: Sequence[str]) -> None:
    others = {f"spillway.commands.{other}" for other in COMMANDS if other not in words}
    assert not loaded(*words, "--help") & others


def test_a_sync_that_moves_nothing_loads_no_database_and_no_cluster(
    spillway: Spillway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # names no proxy, so that what would ask one is not needed either
    assert spillway("sync", "digits", "cloud").code == 0
    found = loaded("sync", "digits", "cloud")
    assert "spillway.sync.execute" in found
    assert not found & {"spillway.checkpoints.store", "spillway.images.repository"}
    assert found & HEAVY <= {"pydantic", "yaml"}


def test_images_that_are_there_load_no_database_no_cluster_and_no_store(
    spillway: Spillway, services: Services, installation: Installation
) -> None:
    declared = {"images": [{"repository": "base/quiet", "tier": "public"}]}
    (installation.config / "images.yaml").write_text(yaml.safe_dump(declared))
    put_image(services.site("onprem").registry, "base/quiet", "v1")
    assert spillway("images", "sync", "base/quiet").code == 0
    found = loaded("images", "sync", "base/quiet")
    assert "spillway.images.repository" in found
    assert not found & {"spillway.checkpoints.store", "spillway.sync.execute"}
    assert found & HEAVY <= {"pydantic", "yaml"}
