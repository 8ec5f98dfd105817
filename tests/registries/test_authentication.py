"""Passwords and tokens: what a registry asks for, and who gets to see them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from spillway.errors import (
    AccessDenied,
)
from spillway.registries import transport
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.sandbox.certificates import issue
from spillway.testing.faulty_proxy import faulty_proxy
from spillway.testing.registry_server import RegistryServer
from spillway.testing.scripted_http import Answer, Call, ScriptedServer
from spillway.testing.scripted_registry import FOUND, MANIFEST, client, errors


def test_a_wrong_password_is_refused_by_the_real_registry_and_says_where_to_change_it(
    registries: Mapping[str, RegistryServer],
) -> None:
    real = registries["onprem"]
    registry = HttpRegistry(name="onprem", url=real.url, username=real.username, password="wrong")
    with pytest.raises(AccessDenied) as caught:
        registry.tags("train")
    text = str(caught.value)
    assert f"registry onprem (127.0.0.1:{real.port}) refused the credentials: 401 UNAUTHORIZED" in text
    assert f"check login '{real.username}' and its password in its Connection" in text
    assert "wrong" not in text


def test_without_credentials_the_real_registry_refuses_and_the_error_asks_for_them(
    registries: Mapping[str, RegistryServer],
) -> None:
    registry = HttpRegistry(name="onprem", url=registries["onprem"].url)
    with pytest.raises(AccessDenied, match="set login and password in its Connection"):
        registry.resolve("train", "v1")


class TokenRegistry:
    """Wants a token of its own token service for everything; tokens end when ``expired`` is set."""

    def __init__(self, registry: ScriptedServer, tokens: ScriptedServer) -> None:
        self.registry, self.tokens = registry, tokens
        self.generation = 1
        self.expires_in: int | None = 300
        registry.script, tokens.script = self.answer, self.give_token

    def give_token(self, call: Call) -> Answer:
        if call.headers.get("Authorization") != f"Basic {base64.b64encode(b'ada:pw').decode()}":
            return Answer(status=401, body=errors("UNAUTHORIZED"))
        scope = ",".join(parse_qs(urlsplit(call.path).query)["scope"])
        token = {"token": f"{self.generation}/{scope}", "expires_in": self.expires_in}
        return Answer(body=json.dumps(token).encode())

    def answer(self, call: Call) -> Answer:
        if not call.headers.get("Authorization", "").startswith(f"Bearer {self.generation}/repository:train:pull"):
            challenge = f'Bearer realm="{self.tokens.url}/token",service="images",scope="repository:train:pull"'
            return Answer(status=401, headers={"WWW-Authenticate": challenge}, body=errors("UNAUTHORIZED"))
        if call.method == "POST":
            return Answer(status=202, headers={"Location": "/v2/train/blobs/uploads/1?state=x"})
        return Answer(status=201) if call.method == "PUT" else FOUND


@pytest.fixture
def token_registry(servers: Callable[[], ScriptedServer]) -> TokenRegistry:
    return TokenRegistry(servers(), servers())


def test_a_token_is_fetched_once_for_each_right_and_used_again(token_registry: TokenRegistry) -> None:
    registry = client(token_registry.registry)
    for _ in range(3):
        assert registry.manifest("train", "v1") == MANIFEST
    registry.put_manifest("train", "v1", MANIFEST)
    assert [parse_qs(urlsplit(call.path).query) for call in token_registry.tokens.calls] == [
        {"service": ["images"], "scope": ["repository:train:pull"]},
        {"service": ["images"], "scope": ["repository:train:pull,push"]},
    ]


def test_a_token_that_the_registry_no_longer_takes_is_replaced(token_registry: TokenRegistry) -> None:
    registry = client(token_registry.registry)
    registry.manifest("train", "v1")
    token_registry.generation = 2
    assert registry.manifest("train", "v1") == MANIFEST
    assert len(token_registry.tokens.calls) == 2


def test_a_token_is_replaced_before_its_life_ends(token_registry: TokenRegistry) -> None:
    token_registry.expires_in = 1
    registry = client(token_registry.registry)
    registry.manifest("train", "v1")
    calls = len(token_registry.registry.calls)
    with pytest.MonkeyPatch.context() as patch:
        now = time.monotonic()
        patch.setattr(transport, "monotonic", lambda: now + 2)
        registry.manifest("train", "v1")
    assert (len(token_registry.tokens.calls), len(token_registry.registry.calls) - calls) == (2, 1)


def test_a_blob_is_uploaded_with_a_token(token_registry: TokenRegistry) -> None:
    client(token_registry.registry).put_blob("train", digest_of(b"layer"), iter([b"lay", b"er"]), size_bytes=5)
    put = token_registry.registry.calls[-1]
    assert (put.method, put.body) == ("PUT", b"layer")
    assert parse_qs(urlsplit(put.path).query) == {"state": ["x"], "digest": [digest_of(b"layer")]}


def test_a_token_service_that_refuses_the_password_is_an_access_error(token_registry: TokenRegistry) -> None:
    registry = client(token_registry.registry, password="old")
    with pytest.raises(AccessDenied, match="check login 'ada' and its password"):
        registry.manifest("train", "v1")


def test_a_right_that_is_missing_is_named(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(status=403, body=errors("DENIED", "requested access is denied"))
    with pytest.raises(
        AccessDenied, match=r"403 DENIED requested access is denied; give 'ada' the right to .*train:pull"
    ):
        client(server).manifest("train", "v1")


def test_the_password_does_not_follow_a_redirect_to_a_storage_service(
    servers: Callable[[], ScriptedServer],
) -> None:
    registry, storage = servers(), servers()
    storage.script = lambda call: Answer(body=b"layer")

    def answer(call: Call) -> Answer:
        if "Authorization" not in call.headers:
            return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return Answer(status=307, headers={"Location": f"{storage.url}/layer"})

    registry.script = answer
    assert b"".join(client(registry).read_blob("train", digest_of(b"layer"))) == b"layer"
    assert [("Authorization" in call.headers) for call in storage.calls] == [False]


def test_the_password_does_not_follow_an_upload_to_another_host(servers: Callable[[], ScriptedServer]) -> None:
    registry, storage = servers(), servers()
    storage.script = lambda call: Answer(status=201)

    def answer(call: Call) -> Answer:
        if "Authorization" not in call.headers:
            return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
        return Answer(status=202, headers={"Location": f"{storage.url}/upload/1"})

    registry.script = answer
    client(registry).put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
    assert [("Authorization" in call.headers, call.body) for call in storage.calls] == [(False, b"layer")]


def test_a_registry_that_calls_itself_http_in_an_upload_gets_bytes_and_password_over_tls_only(
    server: ScriptedServer, tmp_path: Path
) -> None:
    certificates = issue(tmp_path)
    with faulty_proxy(server.url, tls=certificates.server) as proxy:

        def answer(call: Call) -> Answer:
            if "Authorization" not in call.headers:
                return Answer(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
            if call.method == "PUT":
                return Answer(status=201)
            return Answer(status=202, headers={"Location": f"{proxy.url.replace('https', 'http')}/upload/1"})

        server.script, ca_file = answer, str(certificates.ca_file)
        registry = HttpRegistry(name="cloud", url=proxy.url, username="ada", password="pw", ca_file=ca_file)
        registry.put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
    put = server.calls[-1]
    assert (put.method, put.body, "Authorization" in put.headers) == ("PUT", b"layer", True)


@pytest.mark.parametrize(
    ("url", "leads_to", "with_password"),
    [
        ("/v2/upload/1?state=x", "https://images.example/v2/upload/1?state=x", True),
        ("https://images.example:443/upload/1", "https://images.example:443/upload/1", True),
        ("http://images.example/upload/1", "https://images.example/upload/1", True),
        ("http://images.example:8080/upload/1", "http://images.example:8080/upload/1", False),
        ("https://images.example:8443/upload/1", "https://images.example:8443/upload/1", False),
        ("https://storage.example/upload/1", "https://storage.example/upload/1", False),
    ],
)
def test_the_password_goes_with_the_scheme_host_and_port_of_the_registry(
    url: str, leads_to: str, with_password: bool
) -> None:
    base = "https://images.example"
    assert transport.full_url(base, url) == leads_to
    assert (transport.origin(leads_to) == transport.origin(base)) is with_password


def test_a_proxy_that_calls_a_repository_otherwise_gets_a_token_for_its_own_name_too(
    servers: Callable[[], ScriptedServer],
) -> None:
    registry, tokens = servers(), servers()
    inner = "repository:library/train:pull"

    def give_token(call: Call) -> Answer:
        scopes = parse_qs(urlsplit(call.path).query)["scope"]
        return Answer(body=json.dumps({"token": " ".join(scopes)}).encode())

    def answer(call: Call) -> Answer:
        if inner in call.headers.get("Authorization", ""):
            return FOUND
        challenge = f'Bearer realm="{tokens.url}/token",service="hub",scope="{inner}"'
        return Answer(status=401, headers={"WWW-Authenticate": challenge})

    registry.script, tokens.script = answer, give_token
    behind = HttpRegistry(name="hub", url=registry.url, username="ada", password="pw", prefix="proxy/hub")
    assert behind.manifest("train", "v1") == MANIFEST
    (asked,) = (parse_qs(urlsplit(call.path).query)["scope"] for call in tokens.calls)
    assert asked == ["repository:proxy/hub/train:pull", inner]


def test_a_mount_asks_for_the_right_to_both_repositories(token_registry: TokenRegistry) -> None:
    registry, token_registry.expires_in = client(token_registry.registry), None
    registry.manifest("train", "v1")
    registry.put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5, mount_from="base")
    assert [parse_qs(urlsplit(call.path).query)["scope"] for call in token_registry.tokens.calls][-1] == [
        "repository:train:pull,push",
        "repository:base:pull",
    ]
