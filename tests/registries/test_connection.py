"""Registries from Connections."""

from __future__ import annotations

import pytest

from spillway.connections import ConnectionSpec
from spillway.errors import ConfigError
from spillway.registries.connection import open_registry, registry_url

URLS = {
    "host and port": (ConnectionSpec(conn_id="r", conn_type="http", schema="http", host="127.0.0.1", port=5000),
                      "http://127.0.0.1:5000"),
    "encrypted by default": (ConnectionSpec(conn_id="r", conn_type="http", host="images.example"),
                             "https://images.example"),
    "url as host": (ConnectionSpec(conn_id="r", conn_type="http", host="http://images.example:80"),
                    "http://images.example:80"),
    "url and port": (ConnectionSpec(conn_id="r", conn_type="http", host="https://images.example", port=8443),
                     "https://images.example:8443"),
}  # fmt: skip


@pytest.mark.parametrize("case", URLS, ids=str)
def test_a_connection_says_where_its_registry_answers(case: str) -> None:
    connection, url = URLS[case]
    assert registry_url(connection) == url


def test_a_connection_without_a_host_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"connections: cloud_registry\.host: expected the host or URL"):
        open_registry(ConnectionSpec(conn_id="cloud_registry", conn_type="http"), site="cloud")


def test_messages_name_the_site_the_host_and_the_prefix() -> None:
    connection = ConnectionSpec(conn_id="r", conn_type="http", host="images.example", login="a", password="b")
    assert open_registry(connection, site="cloud", prefix="mirror").name == "registry cloud (images.example/mirror)"
