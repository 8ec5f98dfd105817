"""Where requests lead: redirects of whoever is asked, and addresses and certificates that are none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spillway.errors import ConfigError, Unreachable
from spillway.registries import wire
from spillway.registries.http import HttpRegistry
from spillway.testing.scripted_http import Answer, Call, ScriptedServer
from spillway.testing.scripted_registry import FOUND, MANIFEST, client


def test_a_read_follows_its_redirect_on_the_same_host_with_its_password(server: ScriptedServer) -> None:
    def answer(call: Call) -> Answer:
        if "Authorization" not in call.headers:
            return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return FOUND if "moved" in call.path else Answer(status=307, headers={"Location": "/v2/moved?to=a b%20c"})

    server.script = answer
    assert client(server).manifest("train", "v1") == MANIFEST
    assert server.calls[-1].path == "/v2/moved?to=a%20b%20c"


def test_a_redirect_without_end_is_unreachable(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(status=302, headers={"Location": call.path})
    with pytest.raises(Unreachable, match="from one address to the next, more than 5 times"):
        client(server).manifest("train", "v1")
    assert len(server.calls) == wire.MAX_REDIRECTS + 1


@pytest.mark.parametrize("address", ["ftp://storage/layer", "http://storage:port/layer"])
def test_a_redirect_to_what_is_no_address_is_unreachable(server: ScriptedServer, address: str) -> None:
    server.script = lambda call: Answer(status=307, headers={"Location": address})
    with pytest.raises(Unreachable, match="leads to an address that is none"):
        client(server).manifest("train", "v1")


def test_a_file_of_certificates_that_cannot_be_read_is_told_with_its_name() -> None:
    registry = HttpRegistry(name="cloud", url="https://127.0.0.1:1", ca_file="/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=r"the certificates in '/nowhere/ca.pem' cannot be read: .*No such file"):
        registry.tags("train")


def test_many_requests_in_a_row_share_a_connection(servers: Callable[[], ScriptedServer]) -> None:
    server = servers()
    server.script = lambda call: FOUND
    registry = client(server)
    for _ in range(20):
        registry.resolve("train", "v1")
        registry.manifest("train", "v1")
    (pool,) = registry._transport._wire._pools.values()
    assert len(pool._idle) == 1
