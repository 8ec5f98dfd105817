"""The ledger's tests run on both backends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from spillway.ledger import Ledger, upgrade
from spillway.ledger.connection import Database
from spillway.ledger.schema import installation, metadata
from spillway.testing.ledger_files import new_ledger
from spillway.testing.postgres_server import PostgresServer

NewDatabase = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    """Gives the URL of a database that is empty, another one each time."""
    if request.param == "postgresql":
        fresh: NewDatabase = request.getfixturevalue("postgres_server").fresh_database
        return fresh
    numbers = itertools.count(1)

    def new_file() -> str:
        file = tmp_path / f"ledger-{next(numbers)}.db"
        file.touch()
        return f"sqlite:///{file}"

    return new_file


@pytest.fixture(scope="session")
def upgraded_postgres(postgres_server: PostgresServer) -> str:
    """The URL of the one PostgreSQL ledger that tests take turns with."""
    url = postgres_server.fresh_database()
    upgrade(url)
    return url


@pytest.fixture(scope="session")
def broom(upgraded_postgres: str) -> Iterator[Connection]:
    """The one connection that empties it between tests."""
    engine = Database(upgraded_postgres).engine
    with engine.connect() as connection:
        yield connection


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a ledger that holds nothing yet."""
    if request.param == "sqlite":
        return new_ledger(tmp_path / "ledger.db")
    broom: Connection = request.getfixturevalue("broom")
    with broom.begin():
        for table in reversed(metadata.sorted_tables):
            if table is not installation:
                broom.execute(table.delete())
    url: str = request.getfixturevalue("upgraded_postgres")
    return url


@pytest.fixture
def ledger(ledger_url: str) -> Ledger:
    """A ledger that holds nothing yet; that it has this release's schema need not be asked each time."""
    return Ledger(Database(ledger_url))
