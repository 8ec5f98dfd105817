"""``tools/tests.sh``: what fails is tried once more by itself, and only what passes then is forgiven, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillway.sandbox.settings import PROJECT

PASSES = "def test_sound(): pass\n"
FAILS = "def test_broken(): assert 0\n"
PASSES_SECOND = """
import pathlib

def test_crowded():
    mark = pathlib.Path("tried")
    if not mark.exists():
        mark.touch()
        assert 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\ncache_dir = build/pytest-cache\n")
    return tmp_path


def run_tests(folder: Path, content: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(content)
    script = PROJECT / "tools" / "tests.sh"
    argv = ["sh", str(script), sys.executable, "1", "not slow"]
    environment = dict(os.environ) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("content", "code", "told"),
    [
        (PASSES, 0, "1 passed"),
        (PASSES + PASSES_SECOND, 0, "UNSTEADY: failed beside others and passed alone\ntest_it.py::test_crowded"),
        (PASSES + PASSES_SECOND + FAILS, 1, "1 failed, 1 passed"),
    ],
)
def test_a_test_that_fails_twice_fails_the_run_and_one_that_fails_once_is_named(
    folder: Path, content: str, code: int, told: str
) -> None:
    done = run_tests(folder, content)
    assert done.returncode == code, done.stdout + done.stderr
    assert told in done.stdout
    assert ("UNSTEADY" in done.stdout) == ("UNSTEADY" in told)


def test_tests_that_cannot_be_collected_fail_the_run_and_are_not_tried_again(folder: Path) -> None:
    done = run_tests(folder, PASSES + "import nothing_by_this_name\n")
    assert done.returncode != 0
    assert "UNSTEADY" not in done.stdout
