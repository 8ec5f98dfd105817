"""SQLite connection arguments that Airflow reads by name (``docker/airflow.env``).

The default busy time-out of five seconds is shorter than a loaded machine's longest write: "database is locked" then
ends the scheduler, the triggerer and the DAG processor, and nothing brings them back.

The API server's event loop is the exception. Airflow writes its audit log from there with a blocking call, and the
request that holds the write lock may need that very loop to commit: however long such a call waits, it waits in vain
and nobody else is answered meanwhile. There it fails soon, and the caller of that one request repeats it.

A savepoint that begins a transaction takes the write lock at once. Airflow creates the runs of a backfill in one, and
reads before it writes there: SQLite refuses such a write for good, without any patience, where somebody else has
written in between.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any, Self

PATIENCE_SECONDS = 120.0
EVENT_LOOP_PATIENCE_SECONDS = 2.0


class WritingCursor(sqlite3.Cursor):
    """Waits for other writers before a savepoint sees anything."""

    def execute(self, statement: str, *parameters: Any) -> Self:
        if statement.startswith("SAVEPOINT ") and not self.connection.in_transaction:
            super().execute("BEGIN IMMEDIATE")
        return super().execute(statement, *parameters)


class PatientConnection(sqlite3.Connection):
    """Waits for other writers, but not for long where an event loop waits with it."""

    _patience = PATIENCE_SECONDS

    def cursor(self, factory: Any = WritingCursor) -> Any:
        patience = EVENT_LOOP_PATIENCE_SECONDS if _in_event_loop() else PATIENCE_SECONDS
        if patience != self._patience:
            self._patience = patience
            super().cursor().execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
        return super().cursor(factory)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


CONNECT_ARGS = {"timeout": PATIENCE_SECONDS, "factory": PatientConnection}
