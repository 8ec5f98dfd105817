"""A machine that was set up once needs no network any more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillway.sandbox.settings import INCLUDE, PROJECT
from spillway.testing.ports import SANDBOX_PORTS, free_port_block
from spillway.testing.sandbox_server import PORTS

LOOPBACK_UP = """
import fcntl, socket, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1))   # SIOCSIFFLAGS, IFF_UP
"""
NO_WAY_OUT = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
except OSError:
    raise SystemExit(0)
raise SystemExit("this namespace has a network")
"""


def _cut_off(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script where loopback is the only network."""
    whole = f"set -eu\n'{sys.executable}' -c '{LOOPBACK_UP}'\n'{sys.executable}' -c '{NO_WAY_OUT}'\n{script}"
    return subprocess.run(
        ["unshare", "--net", "--map-root-user", "sh", "-c", whole],
        env=dict(os.environ) | environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


@pytest.mark.slow
def test_the_environment_is_installed_from_a_warm_cache(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    result = _cut_off(
        f"sh tools/setup.sh '{venv}'\n'{venv}/bin/python' -c 'import airflow, boto3'", UV_COMPILE_BYTECODE="0"
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert (venv / ".ready").exists()


def test_the_sandbox_comes_up_and_goes_down(tmp_path: Path) -> None:
    sandbox = f"'{sys.executable}' -m spillway.sandbox --state '{tmp_path / 'sandbox'}'"
    port = str(free_port_block(PORTS, SANDBOX_PORTS))
    script = f"{sandbox} up --without-airflow\n{sandbox} status\n{sandbox} down"
    result = _cut_off(script, PYTHONPATH=str(INCLUDE), SPILLWAY_SANDBOX_PORT=port)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "onprem-registry" in result.stdout
