"""Scripted HTTP servers, for what the real test registry cannot be told to do: tokens, rate limits, odd answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

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
