"""The registry contract, run by both implementations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from spillway.registries.base import ImageRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.testing.registry_contract import ImageRegistryContract
from spillway.testing.registry_server import RegistryServer


class TestHttpRegistry(ImageRegistryContract):
    @pytest.fixture
    def registry(self, registries: Mapping[str, RegistryServer]) -> ImageRegistry:
        return registries["onprem"].client()


class TestHttpRegistryBelowAPrefix(ImageRegistryContract):
    @pytest.fixture
    def registry(self, registries: Mapping[str, RegistryServer]) -> ImageRegistry:
        return registries["cloud"].client(prefix="mirror/of/onprem")


class TestLayoutRegistry(ImageRegistryContract):
    @pytest.fixture
    def registry(self, tmp_path: Path) -> ImageRegistry:
        return LayoutRegistry(tmp_path)
