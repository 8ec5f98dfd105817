"""What the supervisor needs to know of a process; each server's module builds its own."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One process: how it starts, when it counts as ready, and which ports must be free for it.

    ``environment`` is the whole environment of the process, nothing is inherited. ``ready`` is called until it gives
    True; it must not block for longer than a second. Processes of an earlier ``stage`` are ready before it starts.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    working_directory: Path
    ready: Callable[[], bool]
    ports: tuple[int, ...] = ()
    stage: int = 0
    stop_grace: timedelta = timedelta(seconds=5)
    restart: bool = True
    cleanup: tuple[Path, ...] = field(default_factory=tuple)
    """Sockets and pid files that a killed process leaves behind; removed before a start."""


def port_open(port: int) -> bool:
    """Whether something listens on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def http_answers(url: str, *, statuses: tuple[int, ...] = (200,)) -> bool:
    """Whether a plain HTTP GET answers with one of the statuses."""
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:
            return answer.status in statuses
    except urllib.error.HTTPError as answer:
        return answer.code in statuses
    except (OSError, HTTPException):
        return False
