"""Fixtures of every area: real servers, started once a session and only when a test asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = [
    "spillway.testing.s3_server",
    "spillway.testing.registry_server",
    "spillway.testing.postgres_server",
    "spillway.testing.kube_server",
    "spillway.testing.real_cluster",
    "spillway.testing.sandbox_server",
]

# How long an example takes says something of the machine only.
settings.register_profile("suite", deadline=None, max_examples=40)
settings.load_profile("suite")

TESTS = Path(__file__).parent
SANDBOX_AREAS = {"cli": "sandbox", "runs": "sandbox"}
"""Areas that share the session's sandbox, so that one process starts one."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep an area on one of the suite's processes: its servers are started there and only there."""
    for item in items:
        area = item.path.relative_to(TESTS).parts[0]
        item.add_marker(pytest.mark.xdist_group(SANDBOX_AREAS.get(area, area)))
