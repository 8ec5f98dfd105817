"""A real PostgreSQL server for tests, as pytest fixtures."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from spillway.sandbox.debian import SYSTEM_PATH, environment, unpack
from spillway.sandbox.process import ProcessSpec
from spillway.sandbox.settings import cache_directory
from spillway.testing.ports import free_port
from spillway.testing.processes import running

INSTALLED = Path("/")
PROGRAMS = "usr/lib/postgresql/*/bin/postgres"
USER = "spillway"

# A test's data need not survive a power cut, and its tests compare English messages.
SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "lc_messages=C", "max_connections=100")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A running server with password authentication; every test takes a database of its own."""

    port: int
    password: str = field(repr=False)

    def url(self, database: str, *, password: str | None = None) -> str:
        """The URL of a database of this server."""
        return f"postgresql://{USER}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def fresh_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{secrets.token_hex(6)}"
        self._execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            self._execute("SELECT 1")
        except psycopg2.OperationalError:
            return False
        return True

    def _execute(self, statement: str) -> None:
        connection: Any = psycopg2.connect(self.url("postgres"), connect_timeout=60)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for the session, removed with its data at the end."""
    # Not below pytest's own folder, which the server's unprivileged user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="spillway-postgres-"))
    try:
        server = PostgresServer(port=free_port(), password=secrets.token_hex(12))
        spec = _initialised(server, folder)
        with running(spec, folder / "server.log"):
            yield server
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of a new, empty database."""
    return postgres_server.fresh_database()


def _initialised(server: PostgresServer, folder: Path) -> ProcessSpec:
    """A new cluster of databases in ``folder`` and the process that serves it."""
    programs, settings = _programs(folder)
    data, password_file = folder / "data", folder / "password"
    password_file.write_text(server.password)
    _give_to_server_user(folder, password_file)
    initdb = [str(programs / "initdb"), "--pgdata", str(data), "--username", USER, "--pwfile", str(password_file)]
    # Each call of the ledger connects anew, which the slow hash of the default would make a tenth of all test time.
    options = ["--auth", "md5", "--locale", "C", "--encoding", "UTF8", "--no-sync"]
    done = subprocess.run(
        [*_as_server_user(), *initdb, *options], env=settings, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"initdb failed:\n{done.stdout}{done.stderr}"
    listen = ["-D", str(data), "-h", "127.0.0.1", "-p", str(server.port), "-k", str(folder)]
    return ProcessSpec(
        name="postgres",
        argv=(*_as_server_user(), str(programs / "postgres"), *listen, *(f"--{setting}" for setting in SETTINGS)),
        environment=settings,
        working_directory=folder,
        ready=server.answers,
        ports=(server.port,),
    )


def _programs(folder: Path) -> tuple[Path, Mapping[str, str]]:
    """The folder of the newest server's programs and the environment they need; unpacked when the host has none."""
    installed = _newest(INSTALLED)
    if installed:
        return installed, {"PATH": SYSTEM_PATH}
    root = unpack(["postgresql"], cache=cache_directory())
    if os.geteuid() == 0:
        # The cache may lie in root's home, which the server's unprivileged user may not enter.
        root = Path(shutil.copytree(root, folder / "programs", symlinks=True))
    unpacked = _newest(root)
    assert unpacked, f"the Debian package postgresql brought no {PROGRAMS}"
    return unpacked, environment(root)


def _newest(root: Path) -> Path | None:
    """The folder of the programs with the greatest version, which is the name of the folder above it."""
    folders = (program.parent for program in root.glob(PROGRAMS))
    return max(folders, key=lambda folder: float(folder.parent.name), default=None)


def _as_server_user() -> tuple[str, ...]:
    """The start of a command that gives up root, under which PostgreSQL refuses to run."""
    if os.geteuid() != 0:
        return ()
    nobody = pwd.getpwnam("nobody")
    return "setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"


def _give_to_server_user(*paths: Path) -> None:
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        for path in paths:
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
