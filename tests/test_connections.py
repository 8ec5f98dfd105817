"""Connections from an exported file; no message and no repr ever shows a secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spillway.connections import ConnectionSpec, connections_from_file
from spillway.errors import ConfigError

SECRET = "hunter2"


def exported(tmp_path: Path, content: Any) -> Path:
    file = tmp_path / "connections.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_extra_is_read_as_text_and_as_a_mapping(tmp_path: Path) -> None:
    extra = {"endpoint_url": "https://127.0.0.1:8333"}
    file = exported(
        tmp_path,
        {
            "store": {"conn_type": "aws", "login": "key", "password": SECRET, "extra": json.dumps(extra)},
            "other": {"conn_type": "aws", "extra": extra},
            "registry": {
                "conn_type": "http",
                "description": None,
                "host": "localhost",
                "port": 5000,
                "schema": "https",
                "login": None,
                "password": None,
                "extra": "",
            },
        },
    )
    assert connections_from_file(file) == {
        "store": ConnectionSpec(conn_id="store", conn_type="aws", login="key", password=SECRET, extra=extra),
        "other": ConnectionSpec(conn_id="other", conn_type="aws", extra=extra),
        "registry": ConnectionSpec(conn_id="registry", conn_type="http", host="localhost", port=5000, schema="https"),
    }


def test_repr_hides_the_password_and_the_extra_fields() -> None:
    spec = ConnectionSpec(conn_id="store", conn_type="aws", password=SECRET, extra={"token": SECRET})
    assert repr(spec) == (
        "ConnectionSpec(conn_id='store', conn_type='aws', host=None, port=None, schema=None, login=None)"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1: not valid JSON: Expecting property name enclosed in double quotes"),
        ("[" * 100_000, "not valid JSON: it is nested too deeply"),
        ([], "expected a mapping of connections by id, got a list"),
        ({"a": f"aws://:{SECRET}@host"}, "a: expected a mapping, got text; export with --file-format json"),
        ({"a": {}}, "a.conn_type: is missing"),
        ({"a": {"conn_type": "aws", "pasword": SECRET}}, None),
        ({"a": {"conn_type": "aws", "password": [SECRET]}}, "a.password: expected text, got a list"),
        ({"a": {"conn_type": "aws", "port": "80"}}, "a.port: expected a port from 1 to 65535, got text"),
        ({"a": {"conn_type": "aws", "port": 0}}, "a.port: expected a port from 1 to 65535, got a number"),
        (
            {"a": {"conn_type": "aws", "extra": f"token={SECRET}"}},
            "a.extra: expected a JSON mapping, got text that is not JSON",
        ),
        ({"a": {"conn_type": "aws", "extra": f'["{SECRET}"]'}}, "a.extra: expected a mapping, got a list"),
    ],
    ids=["no JSON", "deep", "a list", "a URI", "no type", "a typo", "a list for a password", "a port in quotes",
        "port 0",
        "extra that is no JSON", "extra that is a list",
    ],
)  # fmt: skip
def test_a_mistake_is_told_without_the_value(tmp_path: Path, content: Any, message: str | None) -> None:
    with pytest.raises(ConfigError) as raised:
        connections_from_file(exported(tmp_path, content))
    assert SECRET not in str(raised.value)
    if message is not None:
        assert str(raised.value) == f"connections.json: {message}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        connections_from_file(tmp_path / "connections.json")
    told = "no such file; SPILLWAY_CONNECTIONS or --connections names the one"
    assert str(raised.value) == f"{tmp_path}/connections.json: {told}"
