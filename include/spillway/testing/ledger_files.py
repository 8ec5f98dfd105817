"""Ledgers of tests on SQLite: copies of one that was upgraded, which costs more than most tests."""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from contextlib import closing
from functools import cache
from pathlib import Path

from spillway.ledger import upgrade


def new_ledger(file: Path) -> str:
    """The URL of an empty ledger with an id of its own, in a file that is made here."""
    file.write_bytes(_upgraded())
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("update installation set id = ?", (str(uuid.uuid4()),))
    return f"sqlite:///{file}"


@cache
def _upgraded() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "ledger.db")
        upgrade(f"sqlite:///{file}")
        return file.read_bytes()
