from __future__ import annotations

import json
import os
import pwd
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from spillway.errors import AccessDenied, ConfigError, Missing, Unreachable
from spillway.ledger import Ledger, check_workers_reach, open_ledger, upgrade
from spillway.ledger.connection import Database, parse
from spillway.testing.builders import job_spec
from spillway.testing.disks import read_only, small_disk
from spillway.testing.ledger_files import new_ledger
from spillway.testing.ledger_values import NOW, reserve
from spillway.testing.ports import free_port
from spillway.testing.postgres_server import PostgresServer


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "expected a database URL, got something else"),
        ("ledger.db", "expected a database URL, got something else"),
        ("sqlite://", "got the file '', which is not an absolute path"),
        ("sqlite:///:memory:", "got the file ':memory:', which is not an absolute path"),
        ("sqlite:///ledger.db", "got the file 'ledger.db', which is not an absolute path"),
        ("postgresql://me:secret@db", "got ledger postgresql://db/, which names no database"),
        ("mysql://me:secret@db/ledger", "got the driver 'mysql'"),
        ("postgresql://me:secret@db:port/ledger", "expected a database URL, got something else"),
    ],
)
def test_a_url_that_is_no_ledger_is_refused_with_what_was_expected(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_ledger(url)
    assert str(refused.value).startswith(f"ledger: url: {problem}")
    assert "expected 'sqlite:////absolute/path/ledger.db' or 'postgresql://" in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_url_of_an_airflow_connection_is_understood() -> None:
    assert parse("postgres://me:secret@db:5432/ledger") == parse("postgresql+psycopg2://me:secret@db:5432/ledger")


def test_a_file_is_refused_where_workers_are_on_other_hosts() -> None:
    with pytest.raises(ConfigError, match="which workers on other hosts do not share; use 'postgresql://"):
        check_workers_reach("sqlite:////srv/ledger.db", executor_is_local=False)


@pytest.mark.parametrize(
    ("url", "executor_is_local"),
    [("sqlite:////srv/ledger.db", True), ("postgresql://db/ledger", True), ("postgresql://db/ledger", False)],
)
def test_a_ledger_that_every_worker_reaches_is_accepted(url: str, executor_is_local: bool) -> None:
    check_workers_reach(url, executor_is_local=executor_is_local)


def test_a_wrong_password_is_told_without_it(postgres_server: PostgresServer) -> None:
    with pytest.raises(AccessDenied) as denied:
        open_ledger(postgres_server.url("postgres", password="not-this-one"))
    assert f"ledger postgresql://127.0.0.1:{postgres_server.port}/postgres refused the credentials" in str(denied.value)
    assert "correct the user or password of the ledger's URL" in str(denied.value)
    assert "not-this-one" not in str(denied.value)


def test_a_user_without_rights_is_told(postgres_url: str, postgres_server: PostgresServer) -> None:
    upgrade(postgres_url)
    role = "reader_" + postgres_url.rpartition("_")[2]
    with Database(postgres_url).writing() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN PASSWORD 'x'"))
        connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"))
    database = postgres_url.rpartition("/")[2]
    ledger = open_ledger(f"postgresql://{role}:x@127.0.0.1:{postgres_server.port}/{database}")
    with pytest.raises(AccessDenied, match="permission denied for table runs"):
        ledger.open_run("r", job_spec(), {}, NOW)


def test_a_database_that_does_not_exist_is_told(postgres_server: PostgresServer) -> None:
    with pytest.raises(Missing, match=r"database 'nowhere' is not in ledger postgresql://.*; create it"):
        open_ledger(postgres_server.url("nowhere"))


def test_a_server_that_does_not_answer_is_told() -> None:
    port = free_port()
    with pytest.raises(Unreachable, match=f"ledger postgresql://127.0.0.1:{port}/spillway is unreachable: .*refused"):
        open_ledger(f"postgresql://me:secret@127.0.0.1:{port}/spillway")


def test_a_folder_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be opened .*expected a file in a folder that exists"):
        upgrade(f"sqlite:///{tmp_path}/nowhere/ledger.db")


def test_a_file_that_is_missing_is_told_to_whoever_looks_and_made_by_an_upgrade_alone(tmp_path: Path) -> None:
    file, url = tmp_path / "the ledger?#%20.db", f"sqlite:///{tmp_path}/the ledger%3F#%2520.db"
    with pytest.raises(ConfigError, match=r"cannot be opened .*run `python -m spillway ledger upgrade` for a new one"):
        open_ledger(url)
    assert not file.exists()
    upgrade(url)
    assert file.exists()
    assert open_ledger(url).runs() == ()


def test_a_ledger_that_is_lost_while_it_is_in_use_is_told(new_database: Callable[[], str]) -> None:
    ledger = Ledger(Database(new_database()))
    with pytest.raises(ConfigError, match=r"holds no ledger any more \(.*runs.*\); restore it"):
        ledger.runs()


def test_a_file_that_is_no_database_is_told_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_text("department,amount\n" * 100)
    with pytest.raises(ConfigError, match=r"ledger .*/ledger\.db: is not an intact SQLite file"):
        upgrade(f"sqlite:///{file}")
    assert file.read_text() == "department,amount\n" * 100


def test_a_full_disk_is_told_and_what_was_stored_stays(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    upgrade(url)
    ledger = open_ledger(url)
    first, _ = reserve(ledger, "first")

    @event.listens_for(ledger.engine, "connect")
    def limit(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite answers as it does on a full disk

    with pytest.raises(Unreachable, match="its disk is full, nothing of this change was written; free some space"):
        for number in range(1000):
            reserve(ledger, f"run-{number}")
    assert open_ledger(url).attempt("first", 1) == first


def test_a_file_that_this_user_may_not_write_is_told(readable_only: Ledger) -> None:
    assert _as_ordinary_user(lambda: readable_only.open_run("r", job_spec(), {}, NOW)) == {
        "type": "ConfigError",
        "text": f"{readable_only.database.endpoint}: is read-only (attempt to write a readonly database); "
        "expected a file and folder this process may write",
    }


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_a_ledger_on_a_disk_that_cannot_be_written_is_read_and_a_write_is_refused(
    tmp_path: Path, journal_mode: str
) -> None:
    with small_disk(tmp_path / "disk", "size=8m") as disk:
        url = new_ledger(disk / "ledger.db")
        first, _ = reserve(open_ledger(url), "first")
        with closing(sqlite3.connect(disk / "ledger.db")) as connection:
            connection.execute(f"PRAGMA journal_mode = {journal_mode}")
        with read_only(disk):
            ledger = open_ledger(url)
            assert ledger.attempt("first", 1) == first
            with pytest.raises(
                ConfigError, match=r"is read-only .*; expected a file and folder this process may write"
            ):
                reserve(ledger, "second")
        assert open_ledger(url).attempts("second") == ()


def test_a_read_that_may_be_torn_or_lack_the_newest_changes_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=8m") as disk:
        file, log = disk / "ledger.db", disk / "ledger.db-wal"
        ledger = Ledger(Database(new_ledger(file)))
        torn = pytest.raises(Unreachable, match="it was written to while it was read")
        with read_only(disk), torn, ledger.database.reading(), read_only(disk, False):
            reserve(ledger, "meanwhile")
        log.write_bytes(b"of a process that was killed")
        with read_only(disk), pytest.raises(ConfigError, match=r"newest changes are in 'ledger.db-wal'.*; copy both"):
            ledger.runs()


def test_a_writer_that_hangs_is_told_to_the_one_who_waits(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.ledger.connection.LOCK_TIMEOUT_SECONDS", 1)
    waiting = open_ledger(ledger_url)
    with (
        Database(ledger_url).writing(),
        pytest.raises(Unreachable, match="another process held its write lock for too long"),
    ):
        waiting.open_run("r", job_spec(), {}, NOW)
    waiting.open_run("r", job_spec(), {}, NOW)
    assert [record.run for record in waiting.runs()] == ["r"]


def test_a_server_throws_out_a_writer_that_hangs(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade(postgres_url)
    monkeypatch.setattr("spillway.ledger.connection.HUNG_WRITER_SECONDS", 1)
    patient = open_ledger(postgres_url)
    with pytest.raises(Unreachable, match="server closed the connection"), Database(postgres_url).writing() as hanging:
        patient.open_run("r", job_spec(), {}, NOW)
        hanging.execute(text("DELETE FROM runs"))
    assert [record.run for record in patient.runs()] == ["r"]


def test_a_reader_does_not_wait_for_a_writer(ledger: Ledger, ledger_url: str) -> None:
    attempt, _ = reserve(ledger, "r")
    with Database(ledger_url).writing():
        assert ledger.attempts("r") == (attempt,)


@pytest.fixture
def readable_only() -> Iterator[Ledger]:
    """A ledger whose file and folder an ordinary user may read, not write."""
    folder = Path(tempfile.mkdtemp())
    url = f"sqlite:///{folder}/ledger.db"
    upgrade(url)
    ledger = open_ledger(url)
    with ledger.engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
    (folder / "ledger.db").chmod(0o444)
    folder.chmod(0o555)
    yield ledger
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _as_ordinary_user(call: Callable[[], object]) -> dict[str, str]:
    """What the call raises in a process that is not root, for which no file is read-only."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.setgroups([])
            os.setgid(nobody.pw_gid)
            os.setuid(nobody.pw_uid)
        try:
            call()
            seen = {}
        except BaseException as problem:
            seen = {"type": type(problem).__name__, "text": str(problem)}
        os.write(sending, json.dumps(seen).encode())
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as answer:
        raised: dict[str, str] = json.load(answer)
    os.waitpid(child, 0)
    return raised
