"""Pods whose processes the kernel has stopped in their tracks: they neither go on nor end when they are asked to."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hung(run: str) -> Iterator[None]:
    """The processes of the run's pods, stopped; those that are left go on at the end of the block."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _trains(entry, run)]
    assert pids, f"run {run} has no process"
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if _trains(Path(f"/proc/{pid}"), run):
                os.kill(pid, signal.SIGCONT)


def _trains(process: Path, run: str) -> bool:
    try:
        return f"SPILLWAY_RUN={run}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
