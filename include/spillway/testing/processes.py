"""Start one server of a ``ProcessSpec`` for a test and end its whole process group, at the latest with the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from spillway.sandbox.process import ProcessSpec

_TIED = ("setpriv", "--pdeathsig", "TERM", "--")
_starter = ThreadPoolExecutor(1, "starter")
"""The kernel ends a tied process with the thread that started it; this one lives as long as the tests."""
_watching: list[subprocess.Popen[bytes]] = []


def start(spec: ProcessSpec, log: Path) -> subprocess.Popen[bytes]:
    """The process, in a group of its own, writing to ``log``; not yet waited for. It ends with us, even if killed."""
    spec.working_directory.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        return _starter.submit(
            subprocess.Popen[bytes],
            [*_TIED, *spec.argv],
            env=dict(spec.environment),
            cwd=spec.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ).result()


def remove_at_our_end(path: Path) -> None:
    """Remove the file or folder when this process has ended, even killed: what runs beside it and needs it ends too."""
    # Once more for what a server, which takes some seconds to end, put there meanwhile.
    script = 'read -r _; rm -rf "$1"; [ ! -e "$1" ] || { sleep 5; rm -rf "$1"; }'
    _watching.append(subprocess.Popen(["sh", "-c", script, "sh", path], stdin=subprocess.PIPE, start_new_session=True))


def wait_ready(spec: ProcessSpec, process: subprocess.Popen[bytes], log: Path, *, seconds: float = 120) -> None:
    """Return when the spec says ready; AssertionError with the end of the log when it dies or the time is over."""
    deadline = time.monotonic() + seconds
    while not spec.ready():
        if process.poll() is not None or time.monotonic() > deadline:
            end = log.read_text(errors="replace")[-2000:]
            raise AssertionError(f"{spec.name} is not ready (exit code {process.returncode}):\n{end}")
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes], *, grace_seconds: float = 5) -> None:
    """TERM, then KILL, to the whole group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


@contextmanager
def running(spec: ProcessSpec, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The ready process for the length of a ``with`` block."""
    process = start(spec, log)
    try:
        wait_ready(spec, process, log)
        yield process
    finally:
        stop(process)
