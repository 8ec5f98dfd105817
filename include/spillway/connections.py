"""Connections without Airflow: endpoints and credentials from a file that ``airflow connections export`` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spillway.codec import from_json
from spillway.errors import ConfigError, UnknownName

_TEXTS = ("conn_type", "description", "host", "schema", "login", "password")
_KEYS = frozenset({*_TEXTS, "port", "extra"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSpec:
    """An endpoint and its credentials; ``repr`` shows neither the password nor the extra fields."""

    conn_id: str
    conn_type: str
    host: str | None = None
    port: int | None = None
    schema: str | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


def connections_from_file(path: Path) -> Mapping[str, ConnectionSpec]:
    """The connections of a JSON file ``{"id": {"conn_type": ..., "extra": <text or mapping>, ...}}``, by id.

    Raises:
        ConfigError: the file is missing or has another shape; a message never contains a value of the file.
    """
    try:
        data = from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as problem:
        raise ConfigError(
            str(path), "", "no such file; SPILLWAY_CONNECTIONS or --connections names the one"
        ) from problem
    except json.JSONDecodeError as problem:
        raise ConfigError(path.name, f"line {problem.lineno}", f"not valid JSON: {problem.msg}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(path.name, "", f"cannot be read as UTF-8 text: {type(problem).__name__}") from None
    except ValueError as problem:
        raise ConfigError(path.name, "", f"not valid JSON: {problem}") from None
    if not isinstance(data, dict):
        raise ConfigError(path.name, "", f"expected a mapping of connections by id, got {_kind(data)}")
    return {conn_id: _connection(path.name, conn_id, entry) for conn_id, entry in data.items()}


def _connection(file: str, conn_id: str, entry: Any) -> ConnectionSpec:
    if not isinstance(entry, dict):
        raise ConfigError(file, conn_id, f"expected a mapping, got {_kind(entry)}; export with --file-format json")
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(file, conn_id, str(UnknownName("key", key, _KEYS)))
    for key in _TEXTS:
        if not isinstance(entry.get(key), (str, type(None))):
            raise ConfigError(file, f"{conn_id}.{key}", f"expected text, got {_kind(entry[key])}")
    if not entry.get("conn_type"):
        raise ConfigError(file, f"{conn_id}.conn_type", "is missing")
    return ConnectionSpec(
        conn_id=conn_id,
        conn_type=entry["conn_type"],
        host=entry.get("host"),
        port=_port(file, conn_id, entry.get("port")),
        schema=entry.get("schema"),
        login=entry.get("login"),
        password=entry.get("password"),
        extra=_extra(file, conn_id, entry.get("extra")),
    )


def _port(file: str, conn_id: str, written: Any) -> int | None:
    if written is None or (isinstance(written, int) and not isinstance(written, bool) and 0 < written < 65536):
        return written
    raise ConfigError(file, f"{conn_id}.port", f"expected a port from 1 to 65535, got {_kind(written)}")


def _extra(file: str, conn_id: str, written: Any) -> Mapping[str, Any]:
    if isinstance(written, str) and written:
        try:
            written = from_json(written)
        except ValueError:
            # The decode error quotes the document, which may hold a secret.
            raise ConfigError(file, f"{conn_id}.extra", "expected a JSON mapping, got text that is not JSON") from None
    if written in (None, ""):
        return {}
    if not isinstance(written, dict):
        raise ConfigError(file, f"{conn_id}.extra", f"expected a mapping, got {_kind(written)}")
    return written


def _kind(value: Any) -> str:
    """What a value is, without the value: it may be a secret."""
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")


def require_type(connection: ConnectionSpec, *expected: str) -> None:
    """Return where the Connection is of an expected type; a mixed-up one may have all fields that are asked for.

    Raises:
        ConfigError: it is of another.
    """
    if connection.conn_type not in expected:
        raise ConfigError(
            "Connections",
            f"{connection.conn_id}.conn_type",
            f"expected {' or '.join(expected)}, got '{connection.conn_type}'",
        )


def database_url(connection: ConnectionSpec) -> str:
    """The SQLAlchemy URL of a database Connection; a file's is in its extra field ``url``."""
    require_type(connection, "postgres", "postgresql", "sqlite")
    if connection.conn_type == "sqlite":
        return str(connection.extra.get("url") or f"sqlite:///{connection.host or ''}")
    from sqlalchemy import URL

    return URL.create(
        "postgresql",
        username=connection.login,
        password=connection.password,
        host=connection.host,
        port=connection.port,
        database=connection.schema,
    ).render_as_string(hide_password=False)
