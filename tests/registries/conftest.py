"""Scripted HTTP servers, for what the real test registry cannot be told to do: tokens, rate limits, odd answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from spillway.registries import http, transport, upload
from spillway.testing.scripted_http import ScriptedServer


@pytest.fixture
def servers() -> Iterator[Callable[[], ScriptedServer]]:
    """Starts scripted servers that end with the test."""
    started: list[ScriptedServer] = []

    def start() -> ScriptedServer:
        started.append(ScriptedServer())
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def server(servers: Callable[[], ScriptedServer]) -> ScriptedServer:
    return servers()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for, not slept; the clock of the client goes on as if they were."""
    asked: list[float] = []
    real = time.monotonic
    for module in (transport, http, upload):
        monkeypatch.setattr(module, "sleep", asked.append)
    monkeypatch.setattr(transport, "monotonic", lambda: real() + sum(asked))
    return asked
