"""Connections to the SQLite file of a ledger, also to one that this process may only read."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, event

from spillway.errors import ConfigError, Unreachable

_READ_AS = "spillway_read_as"
"""In what SQLAlchemy keeps of a connection: the file, and its state when it was opened without an index."""


def prepare(engine: Engine, file: Path, endpoint: str) -> None:
    """Let the engine open the file so that transactions begin when we say, and readers go on while one process writes.

    For that SQLite keeps an index in a file beside it, which it makes where nobody has the ledger open. Where the
    folder cannot be written, the file is read as it is instead.
    """

    def connect(dialect: Dialect, record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
        connection: Any = dialect.connect(*arguments, **options)
        try:
            return _set_up(connection)
        except sqlite3.OperationalError as problem:
            connection.close()
            if _name(problem) != "SQLITE_CANTOPEN" or os.access(file.parent, os.W_OK):
                raise
        record.info[_READ_AS] = file, _state(file, endpoint)
        return _set_up(dialect.connect(f"{arguments[0]}&immutable=1", *arguments[1:], **options))

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "begin", _begin)


def require_whole(connection: Connection, endpoint: str) -> None:
    """Return unless the file was read without an index while somebody wrote to it: what was read may be torn."""
    file, state = connection.info.get(_READ_AS, (None, None))
    if file is not None and state != _state(file, endpoint):
        raise Unreachable(endpoint, "it was written to while it was read in a folder that cannot be written")


def _set_up(connection: Any) -> Any:
    # The driver would begin on its own, later and without the write lock; see _begin.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as problem:
        # A copy that was never opened for writing, as a backup is, says how it is to be read all the same.
        if not _name(problem).startswith("SQLITE_READONLY"):
            raise
    return connection


def _name(problem: sqlite3.Error) -> str:
    return getattr(problem, "sqlite_errorname", "")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("ledger_begin", "BEGIN"))


def _state(file: Path, endpoint: str) -> tuple[int, int, int]:
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size:
        problem = f"its newest changes are in '{log.name}', which cannot be read in a folder that cannot be written"
        raise ConfigError(endpoint, "", f"{problem}; copy both files to a folder that can, and name that")
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
