"""The ports that test servers get: the suite runs in several processes, and a server may listen late."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spillway.sandbox.settings import INCLUDE
from spillway.testing.ports import SANDBOX_PORTS, SERVERS_AT_ONCE, free_port_block
from spillway.testing.sandbox_server import PORTS

BLOCK = 10
CHOOSE = """
import sys
from spillway.testing.ports import free_port_block
first, end, size = map(int, sys.argv[1:])
print(free_port_block(size, range(first, end)))
"""


def test_blocks_that_one_process_was_given_are_given_to_no_other_although_nobody_listens_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = free_port_block(PORTS, SANDBOX_PORTS) + BLOCK
    # Within what is ours by now; who has had parts of it before may keep the locks of those.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    end = first + (SERVERS_AT_ONCE + 1) * BLOCK
    ours = {free_port_block(BLOCK, range(first, end)) for _ in range(SERVERS_AT_ONCE)}

    argv = [sys.executable, "-c", CHOOSE, str(first), str(end), str(BLOCK)]
    environment = dict(os.environ) | {"PYTHONPATH": str(INCLUDE), "TMPDIR": str(tmp_path)}
    theirs = int(subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout)

    assert ours | {theirs} == set(range(first, end, BLOCK))
    assert theirs not in ours


def test_where_no_block_is_free_that_is_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(RuntimeError, match=f"no 1 neighbouring ports of {port} to {port} are free"):
            free_port_block(1, range(port, port + 1))
