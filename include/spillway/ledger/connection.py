"""Transactions on SQLite and PostgreSQL in which a decision and its write are one step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    NullPool,
    RowMapping,
    Table,
    create_engine,
    func,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError

from spillway.errors import ConfigError
from spillway.ledger import sqlite_files
from spillway.ledger.failures import typed

LOCK_TIMEOUT_SECONDS = 60
HUNG_WRITER_SECONDS = 30  # shorter, so that those who wait get their turn
READ_AT_ONCE = 100
"""Some rows are as large as all that was decided from, so those of a day are not all held at one time."""
_ADVISORY_LOCK = 0x5350494C  # "SPIL"; shared by every writer of one PostgreSQL database
_EXPECTED = "expected 'sqlite:////absolute/path/ledger.db' or 'postgresql://user:password@host:5432/database'"


class Database:
    """One ledger's database. It holds no connection between calls, so threads and forked processes may share it."""

    def __init__(self, url: str, *, create: bool = False) -> None:
        """A SQLite file that is missing is made only where ``create`` says so: an empty one hides that it was lost."""
        self.url = parse(url)
        self.endpoint = describe(self.url)
        self.engine = _engine(self.url, create)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads and never waits for a writer.

        Raises:
            Unreachable: among others, at its end, where a SQLite file that can only be read was written to meanwhile.
        """
        with self.translated(), self.engine.begin() as connection:
            yield connection
            sqlite_files.require_whole(connection, self.endpoint)

    def read_in_parts(self, table: Table, found: ColumnElement[bool]) -> Iterator[RowMapping]:
        """The rows, in the order of the table's one key; one that is replaced meanwhile may be left out."""
        (key,) = table.primary_key
        with self.reading() as connection:
            keys = connection.execute(select(key).where(found).order_by(key)).scalars().all()
        for first in range(0, len(keys), READ_AT_ONCE):
            some = key.in_(keys[first : first + READ_AT_ONCE])
            with self.reading() as connection:
                rows = connection.execute(select(table).where(some).order_by(key)).mappings().all()
            yield from rows

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """The one writing transaction of the moment: what it reads stays true until it is committed.

        SQLite begins with its write lock. PostgreSQL waits for an advisory lock first, and each of its statements then
        sees all that earlier writers committed; a writer that hangs or is lost in the middle is thrown out.
        """
        with self.translated(), self._writer.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(
                    f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'; "
                    f"SET LOCAL idle_in_transaction_session_timeout = '{HUNG_WRITER_SECONDS}s'; "
                    f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"
                )
            yield connection

    @property
    def _writer(self) -> Engine:
        return self.engine.execution_options(ledger_begin="BEGIN IMMEDIATE")

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as problem:
            error = typed(problem, self.endpoint)
            if error is None:
                raise
            raise error from problem


def shared_time(connection: Connection) -> datetime:
    """The database's time, as the clocks of the hosts that share it differ; all that share a file are on one host."""
    if connection.dialect.name == "postgresql":
        moment: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return moment
    return datetime.now(UTC)


def parse(url: str) -> URL:
    """The URL with the driver the ledger uses; an Airflow Connection's ``postgres://`` is understood."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The text itself may hold a password and is not repeated, nor is the cause, which may quote it.
        raise ConfigError("ledger", "url", f"expected a database URL, got something else; {_EXPECTED}") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or not Path(parsed.database).is_absolute():
            raise ConfigError(
                "ledger", "url", f"got the file '{parsed.database or ''}', which is not an absolute path; {_EXPECTED}"
            )
        return parsed.set(drivername="sqlite+pysqlite")
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg2"):
        if not parsed.database:
            raise ConfigError("ledger", "url", f"got {describe(parsed)}, which names no database; {_EXPECTED}")
        return parsed.set(drivername="postgresql+psycopg2")
    raise ConfigError("ledger", "url", f"got the driver '{parsed.drivername}'; {_EXPECTED}")


def describe(url: URL) -> str:
    """The address for messages, without user, password and options."""
    if url.get_backend_name() == "sqlite":
        return f"ledger {url.database}"
    port = f":{url.port}" if url.port else ""
    return f"ledger postgresql://{url.host or ''}{port}/{url.database or ''}"


def check_workers_reach(url: str, *, executor_is_local: bool) -> None:
    """Refuse a file for a ledger whose writers run on several hosts.

    Raises:
        ConfigError: the URL is SQLite and the executor's workers are not on this host.
    """
    parsed = parse(url)
    if parsed.get_backend_name() == "sqlite" and not executor_is_local:
        raise ConfigError(
            describe(parsed),
            "",
            "is a SQLite file, which workers on other hosts do not share; use 'postgresql://user:password@host/database'",
        )


def _engine(url: URL, create: bool) -> Engine:
    if url.get_backend_name() == "sqlite":
        file = Path(str(url.database))
        mode = {"uri": "true", "mode": "rwc" if create else "rw"}
        uri = url.set(database=file.as_uri()).update_query_dict(mode)
        engine = create_engine(uri, poolclass=NullPool, connect_args={"timeout": LOCK_TIMEOUT_SECONDS})
        sqlite_files.prepare(engine, file, describe(url))
        return engine
    defaults = {"connect_timeout": 10, "application_name": "spillway"}
    arguments = {key: value for key, value in defaults.items() if key not in url.query}
    return create_engine(url, poolclass=NullPool, connect_args=arguments)
