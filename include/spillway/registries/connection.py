"""A registry client from a Connection."""

from __future__ import annotations

from urllib.parse import urlsplit

from spillway.connections import ConnectionSpec
from spillway.errors import ConfigError
from spillway.registries.http import HttpRegistry


def open_registry(connection: ConnectionSpec, *, site: str, prefix: str = "") -> HttpRegistry:
    """The registry of a site; nothing is asked of it yet.

    The Connection's host is a URL, or a host with ``schema`` (``https`` where it is empty) and ``port``; its extra
    field ``ca_file`` names the authority of a certificate that is not publicly trusted.
    """
    ca_file = connection.extra.get("ca_file")
    return HttpRegistry(
        name=site,
        url=registry_url(connection),
        username=connection.login,
        password=connection.password,
        prefix=prefix,
        ca_file=str(ca_file) if ca_file else None,
    )


def registry_url(connection: ConnectionSpec) -> str:
    """Where the registry of a Connection answers: ``scheme://host[:port]``."""
    host = connection.host or ""
    parts = urlsplit(host if "://" in host else f"{connection.schema or 'https'}://{host}")
    if not parts.hostname:
        raise ConfigError("connections", f"{connection.conn_id}.host", "expected the host or URL of a registry")
    port = "" if parts.port or not connection.port else f":{connection.port}"
    return f"{parts.scheme}://{parts.netloc}{port}"
