"""Typed errors for what a database driver raises, so that a user never reads a driver's traceback."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from spillway.errors import AccessDenied, ConfigError, Missing, SpillwayError, Unreachable

UPGRADE = "run `python -m spillway ledger upgrade`"
_WRITE_LOCK = "another process held its write lock for too long; look for one that hangs in a transaction"
_DISK_FULL = "its disk is full, nothing of this change was written; free some space and repeat"
_FIX_ACCESS = "correct the user or password of the ledger's URL, or grant this user the right"

# libpq gives no code for what goes wrong while connecting, only the server's text.
_CONNECT_DENIALS = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "permission denied for database",
    'FATAL: role "',
)


def typed(problem: DBAPIError, endpoint: str) -> SpillwayError | None:
    """The error a caller can act on, or None where the fault is in the statement itself."""
    if isinstance(problem.orig, sqlite3.Error):
        return _sqlite(problem, problem.orig, endpoint)
    return _postgresql(problem, endpoint)


def _sqlite(problem: DBAPIError, cause: sqlite3.Error, endpoint: str) -> SpillwayError | None:
    name = getattr(cause, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Unreachable(endpoint, _WRITE_LOCK)
    if name == "SQLITE_FULL":
        return Unreachable(endpoint, _DISK_FULL)
    if name.startswith("SQLITE_READONLY"):
        return ConfigError(endpoint, "", f"is read-only ({cause}); expected a file and folder this process may write")
    if name.startswith("SQLITE_CANTOPEN"):
        expected = f"expected a file in a folder that exists; restore it, or {UPGRADE} for a new one"
        return ConfigError(endpoint, "", f"cannot be opened ({cause}); {expected}")
    if str(cause).startswith("no such table"):
        return _no_ledger(endpoint, str(cause))
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return ConfigError(endpoint, "", f"is not an intact SQLite file ({cause}); restore it or name another file")
    return Unreachable(endpoint, str(cause)) if isinstance(problem, OperationalError) else None


def _postgresql(problem: DBAPIError, endpoint: str) -> SpillwayError | None:
    text = " ".join(str(problem.orig).split())
    code = getattr(problem.orig, "pgcode", None) or ""
    if code.startswith("28") or code == "42501" or (not code and any(part in text for part in _CONNECT_DENIALS)):
        return AccessDenied(endpoint, text, fix=_FIX_ACCESS)
    if not code and 'FATAL: database "' in text and "does not exist" in text:
        return Missing("database", endpoint.rpartition("/")[2], endpoint, fix="create it, or correct the ledger's URL")
    if code == "42P01":
        return _no_ledger(endpoint, text)
    if code == "55P03":
        return Unreachable(endpoint, _WRITE_LOCK)
    if code == "53100":
        return Unreachable(endpoint, _DISK_FULL)
    if code == "25006":
        return ConfigError(endpoint, "", f"is read-only ({text}); expected the primary server, not a standby")
    return Unreachable(endpoint, text) if isinstance(problem, (OperationalError, InterfaceError)) else None


def _no_ledger(endpoint: str, problem: str) -> ConfigError:
    return ConfigError(endpoint, "", f"holds no ledger any more ({problem}); restore it, or {UPGRADE} for a new one")
