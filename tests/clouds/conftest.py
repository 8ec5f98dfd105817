"""Servers that answer what a test writes down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from spillway.testing.scripted_api import Answer, ScriptedApi, scripted_api

Script = Callable[..., ScriptedApi]


@pytest.fixture
def script() -> Iterator[Script]:
    """Starts a server with the given answers; all are stopped after the test."""
    with ExitStack() as running:

        def start(*answers: Answer) -> ScriptedApi:
            return running.enter_context(scripted_api(*answers))

        yield start
