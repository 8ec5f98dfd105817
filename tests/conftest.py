"""Fixtures of every area: real servers, started once a session and only when a test asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

pytest_plugins = [
    "spillway.testing.s3_server",
    "spillway.testing.registry_server",
    "spillway.testing.postgres_server",
    "spillway.testing.kube_server",
    "spillway.testing.real_cluster",
    "spillway.testing.sandbox_server",
    "spillway.testing.prometheus_server",
]

# How long an example takes says something of the machine only, and what passes today passes tomorrow: the examples are
# the same each time, and none is kept from an earlier run. `--hypothesis-profile=default` asks for new ones.
settings.register_profile(
    "suite",
    deadline=None,
    max_examples=40,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("suite")

TESTS = Path(__file__).parent
LONGEST_FIRST = ("e2e", "runs", "cli", "sandbox", "stores", "ledger", "sync", "plugins", "setup", "trainer")
"""Begun first, so that no process of the suite ends long after the others."""


def _area(nodeid: str) -> str:
    """The folder below ``tests`` whose servers a test shares with its neighbours."""
    return nodeid.partition("tests/")[2].partition("/")[0].partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the areas into the order in which they are begun; tests of an area keep theirs."""
    rank = {area: number for number, area in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(_area(item.nodeid), len(rank)))


class AreaScheduling(LoadScopeScheduling):
    """Keeps an area on one of the suite's processes: its servers are started there and only there."""

    def _split_scope(self, nodeid: str) -> str:
        return _area(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> AreaScheduling:
    """What ``-n`` uses."""
    return AreaScheduling(config, log)
