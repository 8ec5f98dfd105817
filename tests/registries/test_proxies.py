"""Which way requests to a registry take where the environment names a proxy."""

from __future__ import annotations

import base64

import pytest

from spillway.errors import Unreachable
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.testing.scripted_http import Answer, Call, ScriptedServer
from spillway.testing.scripted_registry import FOUND, MANIFEST, client

FAR = "http://registry.invalid:5000"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def far() -> HttpRegistry:
    return HttpRegistry(name="cloud", url=FAR, username=None, password=None)


def test_a_registry_is_asked_through_the_proxy_with_its_password(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda call: FOUND
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("http://", "http://me:p%40ss@"))
    assert far().manifest("train", "v1") == MANIFEST
    (call,) = server.calls
    assert call.path == f"{FAR}/v2/train/manifests/v1"
    assert call.headers["Proxy-Authorization"] == f"Basic {base64.b64encode(b'me:p@ss').decode()}"


def test_a_blob_is_pushed_through_the_proxy(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def registry(call: Call) -> Answer:
        return Answer(status=202, headers={"Location": "/upload/1"}) if call.method == "POST" else Answer(status=201)

    server.script = registry
    monkeypatch.setenv("HTTP_PROXY", server.url)
    far().put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
    assert [(call.method, call.body) for call in server.calls] == [("POST", b""), ("PUT", b"layer")]
    assert all(call.path.startswith(FAR) for call in server.calls)


def test_a_registry_that_the_environment_excepts_is_asked_itself(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda call: FOUND
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert client(server).manifest("train", "v1") == MANIFEST


@pytest.mark.parametrize(
    ("proxy", "told"), [("http://127.0.0.1:1", "proxy URL: .*127.0.0.1:1"), ("http://:::", "Failed to parse")]
)
def test_a_proxy_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, proxy: str, told: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(Unreachable, match=told):
        far().manifest("train", "v1")
