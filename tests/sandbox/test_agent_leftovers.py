"""What an agent finds at its start, and what it hands out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spillway.errors import SandboxError
from spillway.sandbox.agent.cgroups import memory_group, remove_group
from spillway.sandbox.agent.client import read_kubeconfig
from spillway.sandbox.agent.container import start_ticks, sweep


def test_the_sweep_kills_what_an_agent_left_and_nothing_that_took_over_its_number(tmp_path: Path) -> None:
    left, innocent = (subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2))
    directory = tmp_path / "uid"
    directory.mkdir()
    (directory / "a.pid").write_text(f"{left.pid} {start_ticks(left.pid)}")
    (directory / "b.pid").write_text(f"{innocent.pid} 1")
    (directory / "c.pid").write_text("")
    try:
        assert sweep(tmp_path) == 1
        assert left.wait(60) == -9
        assert innocent.poll() is None
        assert list(tmp_path.rglob("*.pid")) == []
    finally:
        for process in (left, innocent):
            process.kill()
            process.wait()


def test_the_sweep_removes_the_limits_of_the_pods_that_it_finds_and_no_others(tmp_path: Path) -> None:
    mine, other = (memory_group(f"test-{name}-{os.getpid()}", "main", 64 << 20) for name in ("mine", "other"))
    (tmp_path / f"test-mine-{os.getpid()}").mkdir()
    try:
        assert sweep(tmp_path) == 0
        assert mine is None or not mine.exists()
        assert other is None or other.exists()
    finally:
        if other:
            remove_group(other)


@pytest.mark.parametrize("content", ["", "current-context: x\ncontexts: []\n", "{", "current-context: x"], ids=repr)
def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(content)

    with pytest.raises(SandboxError, match=f"{file}: expected a kubeconfig with a current context"):
        read_kubeconfig(file)
