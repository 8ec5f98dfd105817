"""The ledger's tests run on both backends."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from spillway.ledger import Ledger, open_ledger, upgrade
from spillway.ledger.schema import metadata
from spillway.testing.postgres_server import PostgresServer

NewDatabase = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    """Gives the URL of a database that is empty, another one each time."""
    if request.param == "postgresql":
        fresh: NewDatabase = request.getfixturevalue("postgres_server").fresh_database
        return fresh
    numbers = itertools.count(1)
    return lambda: f"sqlite:///{tmp_path}/ledger-{next(numbers)}.db"


@pytest.fixture(scope="session")
def upgraded_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ledger of which each test takes a copy: to upgrade one a test takes long."""
    file = tmp_path_factory.mktemp("upgraded") / "ledger.db"
    upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def upgraded_postgres(postgres_server: PostgresServer) -> str:
    """The URL of the one PostgreSQL ledger that tests take turns with."""
    url = postgres_server.fresh_database()
    upgrade(url)
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a ledger that holds nothing yet."""
    if request.param == "sqlite":
        file = shutil.copy(request.getfixturevalue("upgraded_sqlite"), tmp_path / "ledger.db")
        return f"sqlite:///{file}"
    url: str = request.getfixturevalue("upgraded_postgres")
    with open_ledger(url).engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    return url


@pytest.fixture
def ledger(ledger_url: str) -> Ledger:
    """A ledger that holds nothing yet."""
    return open_ledger(ledger_url)
