"""The ledger's tests run on both backends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from spillway.ledger import Ledger, open_ledger, upgrade

NewDatabase = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    """Gives the URL of a database that is empty, another one each time."""
    if request.param == "postgresql":
        fresh: NewDatabase = request.getfixturevalue("postgres_server").fresh_database
        return fresh
    numbers = itertools.count(1)
    return lambda: f"sqlite:///{tmp_path}/ledger-{next(numbers)}.db"


@pytest.fixture
def ledger_url(new_database: NewDatabase) -> str:
    """The URL of a ledger that holds nothing yet."""
    url = new_database()
    upgrade(url)
    return url


@pytest.fixture
def ledger(ledger_url: str) -> Ledger:
    """A ledger that holds nothing yet."""
    return open_ledger(ledger_url)
