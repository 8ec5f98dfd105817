"""How long a connection to Airflow's SQLite waits for another writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spillway.sandbox.sqlite_settings import CONNECT_ARGS, EVENT_LOOP_PATIENCE_SECONDS


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "airflow.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table log (text)")
    yield file


def connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, check_same_thread=False, **CONNECT_ARGS)  # type: ignore[call-overload, no-any-return]


def test_a_thread_waits_longer_for_a_writer_than_an_event_loop_would(database: Path) -> None:
    with closing(connect(database)) as holder, closing(connect(database)) as waiter:
        holder.execute("insert into log values ('first')")
        release = threading.Timer(EVENT_LOOP_PATIENCE_SECONDS + 1, holder.commit)
        release.start()
        waiter.cursor().execute("insert into log values ('second')")
        waiter.commit()
        release.join()
        assert waiter.execute("select count(*) from log").fetchone() == (2,)


def test_what_a_savepoint_read_is_still_so_when_it_writes(database: Path) -> None:
    with closing(connect(database)) as connection, closing(sqlite3.connect(database, timeout=0)) as second:
        first = connection.cursor()  # as SQLAlchemy does it
        first.execute("SAVEPOINT runs")
        assert first.execute("select count(*) from log").fetchone() == (0,)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            second.execute("insert into log values ('second')")
        first.execute("insert into log values ('first')")
        first.execute("RELEASE SAVEPOINT runs")
        connection.commit()
        second.execute("insert into log values ('second')")
        second.commit()
        assert connection.execute("select text from log").fetchall() == [("first",), ("second",)]


def test_an_event_loop_gives_up_soon_and_its_connection_is_patient_again_in_a_thread(database: Path) -> None:
    with closing(connect(database)) as holder, closing(connect(database)) as waiter:
        holder.execute("insert into log values ('first')")

        async def write() -> None:
            waiter.cursor().execute("insert into log values ('second')")

        began = time.monotonic()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            asyncio.run(write())
        assert time.monotonic() - began < 60
        waiter.rollback()

        release = threading.Timer(EVENT_LOOP_PATIENCE_SECONDS + 1, holder.commit)
        release.start()
        waiter.cursor().execute("insert into log values ('third')")
        waiter.commit()
        release.join()
        assert waiter.execute("select text from log").fetchall() == [("first",), ("third",)]
