"""The HTTP registry against a real server's refusals and a scripted server's oddities."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from spillway.errors import (
    AccessDenied,
    ConfigError,
    DigestMismatch,
    InvalidImage,
    PreconditionFailed,
    RequestRefused,
    SpillwayError,
    Unreachable,
)
from spillway.registries import transport
from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.testing.images import OCI_MANIFEST, image_manifest
from spillway.testing.registry_server import RegistryServer
from spillway.testing.scripted_http import Answer, Call, ScriptedServer

BODY = image_manifest(config=b"{}", layers=[b"a layer"])
MANIFEST = Manifest(digest=digest_of(BODY), media_type=OCI_MANIFEST, body=BODY)
FOUND = Answer(body=BODY, headers={"Content-Type": OCI_MANIFEST, "Docker-Content-Digest": MANIFEST.digest})


def client(server: ScriptedServer, *, username: str | None = "ada", password: str | None = "pw") -> HttpRegistry:
    return HttpRegistry(name="cloud", url=server.url, username=username, password=password)


def errors(code: str, message: str = "") -> bytes:
    return json.dumps({"errors": [{"code": code, "message": message}]}).encode()


# -- credentials ------------------------------------------------------------------------------------------------------


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


# -- rate limits and failures -----------------------------------------------------------------------------------------


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for, not slept."""
    asked: list[float] = []
    monkeypatch.setattr(transport, "sleep", asked.append)
    return asked


def limited(times: int, *, retry_after: str | None) -> Callable[[Call], Answer]:
    answers = [Answer(status=429, headers={"Retry-After": retry_after} if retry_after else {})] * times

    def answer(call: Call) -> Answer:
        return answers.pop() if answers else FOUND

    return answer


@pytest.mark.parametrize(
    ("retry_after", "expected"), [("7", [7.0, 7.0]), ("90", [60.0, 60.0]), (None, [1.0, 2.0])], ids=str
)
def test_a_rate_limit_is_waited_out_as_long_as_the_registry_says(
    server: ScriptedServer, pauses: list[float], retry_after: str | None, expected: list[float]
) -> None:
    server.script = limited(2, retry_after=retry_after)
    assert client(server).manifest("train", "v1") == MANIFEST
    assert pauses == expected


def test_the_start_of_an_upload_waits_out_a_rate_limit_too(server: ScriptedServer, pauses: list[float]) -> None:
    answers = [Answer(status=201), Answer(status=202, headers={"Location": "/upload/1"}), Answer(status=429)]
    server.script = lambda call: answers.pop()
    client(server).put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
    assert ([call.method for call in server.calls], pauses) == (["POST", "POST", "PUT"], [1.0])


def test_a_rate_limit_may_name_the_moment_of_its_end(server: ScriptedServer, pauses: list[float]) -> None:
    server.script = limited(1, retry_after=format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True))
    client(server).manifest("train", "v1")
    assert 20 < pauses[0] <= 30


def test_a_rate_limit_that_does_not_end_is_unreachable_with_its_pause(
    server: ScriptedServer, pauses: list[float]
) -> None:
    server.script = limited(99, retry_after="3")
    with pytest.raises(Unreachable, match="limits the rate") as caught:
        client(server).manifest("train", "v1")
    assert (caught.value.retry_after_seconds, len(pauses)) == (3.0, transport.MAX_RATE_LIMIT_WAITS)


def test_a_failure_of_the_registry_that_passes_is_not_seen(server: ScriptedServer, pauses: list[float]) -> None:
    answers = [FOUND, Answer(status=502), Answer(status=500)]
    server.script = lambda call: answers.pop()
    assert client(server).manifest("train", "v1") == MANIFEST
    assert pauses == list(transport.FAILURE_PAUSES_SECONDS)


def test_an_upload_is_never_sent_twice(server: ScriptedServer, pauses: list[float]) -> None:
    def answer(call: Call) -> Answer:
        return Answer(status=202, headers={"Location": "/upload/1"}) if call.method == "POST" else Answer(status=500)

    server.script = answer
    with pytest.raises(Unreachable, match="500"):
        client(server).put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
    assert ([call.method for call in server.calls], pauses) == (["POST", "PUT"], [])


def test_nothing_listening_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"^registry cloud \(127\.0\.0\.1:1\) is unreachable: .*Connection refused"):
        HttpRegistry(name="cloud", url="http://127.0.0.1:1").tags("train")


REFUSALS: dict[str, tuple[Answer, type[SpillwayError], str]] = {
    "server error": (Answer(status=503, body=errors("UNAVAILABLE", "later")), Unreachable, "503 UNAVAILABLE later"),
    "full disk": (Answer(status=500, body=errors("UNKNOWN", "no space left on device")), Unreachable, "no space left"),
    "bad name": (Answer(status=400, body=errors("NAME_INVALID")), RequestRefused, "GET /v2/train/.*400 NAME_INVALID"),
    "not a registry": (Answer(status=418), RequestRefused, "418"),
    "cut off": (Answer(body=BODY, cut_bytes=3), Unreachable, "cut off"),
    "other bytes": (Answer(body=BODY, headers={"Docker-Content-Digest": digest_of(b"x")}), DigestMismatch, "manifest"),
}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_a_failure_has_the_type_that_tells_whether_a_retry_helps(
    server: ScriptedServer, pauses: list[float], case: str
) -> None:
    answer, kind, text = REFUSALS[case]
    server.script = lambda call: answer
    with pytest.raises(kind, match=text):
        client(server).manifest("train", "v1")


def test_a_manifest_that_is_not_what_its_digest_promises_is_refused(server: ScriptedServer) -> None:
    server.script = lambda call: FOUND
    wanted = digest_of(b"another manifest")
    with pytest.raises(DigestMismatch, match=f"expected digest {wanted}, the bytes have {MANIFEST.digest}"):
        client(server).manifest("train", wanted)


def test_a_manifest_without_end_is_refused(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillway.registries.http.MAX_MANIFEST_BYTES", 100)
    server.script = lambda call: FOUND
    with pytest.raises(InvalidImage, match="more than 100 bytes"):
        client(server).manifest("train", "v1")


def test_a_blob_that_is_cut_off_is_unreachable(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(body=b"layer", cut_bytes=2)
    with pytest.raises(Unreachable, match="cut off"):
        list(client(server).read_blob("train", digest_of(b"layer")))


def test_a_web_server_that_is_no_registry_is_not_taken_for_an_empty_one(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(status=404, body=b"<html>not found</html>")
    with pytest.raises(Unreachable, match="did not answer as a registry does; check its URL"):
        client(server).tags("train")


@pytest.mark.parametrize("url", ["127.0.0.1:5000", "ftp://registry", "http://", ""], ids=repr)
def test_a_url_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match=r"registry cloud: url: expected http\(s\)://host"):
        HttpRegistry(name="cloud", url=url)


# -- tags and digests -------------------------------------------------------------------------------------------------


def test_every_page_of_tags_is_read(server: ScriptedServer) -> None:
    pages = {
        "/v2/train/tags/list?n=1000": (["a", "b"], '</v2/train/tags/list?last=b&n=2>; rel="next"'),
        "/v2/train/tags/list?last=b&n=2": (["c"], f'<{server.url}/v2/train/tags/list?last=c>; rel="next"'),
        "/v2/train/tags/list?last=c": (None, None),
    }

    def answer(call: Call) -> Answer:
        tags, link = pages[call.path]
        return Answer(body=json.dumps({"tags": tags}).encode(), headers={"Link": link} if link else {})

    server.script = answer
    assert client(server).tags("train") == ("a", "b", "c")


def test_pages_that_go_round_in_a_circle_are_an_error_and_not_a_hang(server: ScriptedServer) -> None:
    link = {"Link": '</v2/train/tags/list?last=a>; rel="next"'}
    server.script = lambda call: Answer(body=b'{"tags": ["a"]}', headers=link)
    with pytest.raises(Unreachable, match="never ends"):
        client(server).tags("train")


def test_a_registry_that_sends_no_digest_is_asked_for_the_manifest(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(body=BODY, headers={"Content-Type": OCI_MANIFEST})
    assert client(server).resolve("train", "v1") == MANIFEST.digest


def test_all_kinds_of_manifests_are_accepted(server: ScriptedServer) -> None:
    server.script = lambda call: FOUND
    client(server).resolve("train", "v1")
    accepted = set(server.calls[-1].headers["Accept"].split(", "))
    assert accepted == {
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    }


def test_a_blob_whose_address_is_a_storage_service_is_there(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(status=307, headers={"Location": "http://storage.example/layer"})
    assert client(server).has_blob("train", digest_of(b"layer"))


# -- pushes -----------------------------------------------------------------------------------------------------------

IMMUTABLE = {
    "conflict": Answer(status=409, body=errors("CONFLICT")),
    "precondition": Answer(status=412, body=errors("PRECONDITION", "configured as immutable, cannot be updated")),
    "bad request": Answer(status=400, body=errors("TAG_INVALID", "The image tag 'v1' already exists and is immutable")),
}


@pytest.mark.parametrize("case", IMMUTABLE, ids=str)
def test_a_tag_that_may_not_be_moved_is_told_from_other_refusals(server: ScriptedServer, case: str) -> None:
    server.script = lambda call: IMMUTABLE[case]
    with pytest.raises(PreconditionFailed, match="train:v1"):
        client(server).put_manifest("train", "v1", MANIFEST)


def test_a_registry_that_stores_other_bytes_is_found_out(server: ScriptedServer) -> None:
    server.script = lambda call: Answer(status=201, headers={"Docker-Content-Digest": digest_of(b"other")})
    with pytest.raises(
        DigestMismatch, match=f"expected digest {MANIFEST.digest}, the bytes have {digest_of(b'other')}"
    ):
        client(server).put_manifest("train", "v1", MANIFEST)


def test_an_upload_that_the_registry_forgot_may_be_begun_again(server: ScriptedServer) -> None:
    def answer(call: Call) -> Answer:
        if call.method == "POST":
            return Answer(status=202, headers={"Location": "/upload/1"})
        return Answer(status=404, body=errors("BLOB_UPLOAD_UNKNOWN"))

    server.script = answer
    with pytest.raises(Unreachable, match=r"no longer knows an upload that it began .*BLOB_UPLOAD_UNKNOWN"):
        client(server).put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)


def test_an_upload_that_the_registry_finds_wrong_is_a_mismatch(server: ScriptedServer) -> None:
    def answer(call: Call) -> Answer:
        if call.method == "POST":
            return Answer(status=202, headers={"Location": "/upload/1"})
        return Answer(status=400, body=errors("DIGEST_INVALID"))

    server.script = answer
    with pytest.raises(DigestMismatch, match="says the registry"):
        client(server).put_blob("train", digest_of(b"layer"), iter([b"layer"]), size_bytes=5)
