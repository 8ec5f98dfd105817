"""Loopback ports of servers, which a test may kill and start again on the same one."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

SANDBOX_PORTS, STORE_PORTS, SERVER_PORTS = range(10100, 20000), range(20000, 30000), range(30000, 32768)
"""Below those that the kernel gives: to a connection, or to who lets it choose, while a server is away. Blocks of
different sizes never overlap. A browser refuses port 10080."""
SERVERS_AT_ONCE = 20
_TRIES = 20_000
_locks: list[int] = []
"""Of the blocks that this process was given last; those of earlier ones are listened on, or over."""


def free_port() -> int:
    """A port that is free and that no other test process was given."""
    return free_port_block(1, SERVER_PORTS)


def free_port_block(count: int, among: range) -> int:
    """The first of ``count`` neighbouring ports that are free and that no other test process was given.

    Raises:
        RuntimeError: there are none.
    """
    locks = Path(tempfile.gettempdir(), "spillway-test-ports")
    locks.mkdir(exist_ok=True)
    for _ in range(_TRIES):
        first = random.choice(among[: len(among) - count + 1 : count])
        if _is_locked(locks / f"{first}.lock") and all(_is_free(first + offset) for offset in range(count)):
            return first
    raise RuntimeError(f"no {count} neighbouring ports of {among.start} to {among.stop - 1} are free")


def _is_locked(path: Path) -> bool:
    """Whether the block is this process's from now on: a server may listen long after its ports were chosen."""
    lock = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    _locks.append(lock)
    if len(_locks) > SERVERS_AT_ONCE:
        os.close(_locks.pop(0))
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
