"""Two registries, and a repository of its own for every test."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pytest

from spillway.images import patience
from spillway.registries import transport
from spillway.registries.http import HttpRegistry
from spillway.testing.registry_server import RegistryServer


@pytest.fixture
def repository() -> str:
    return f"train/{uuid4().hex}"


@pytest.fixture
def onprem(registries: Mapping[str, RegistryServer]) -> HttpRegistry:
    return registries["onprem"].client()


@pytest.fixture
def cloud(registries: Mapping[str, RegistryServer]) -> HttpRegistry:
    return registries["cloud"].client(prefix="mirror")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """One try each."""
    monkeypatch.setattr(patience, "TRIES", 1)
    monkeypatch.setattr(transport, "RESUME_TRIES", 1)
