"""A file of known digest goes in one request, straight from the disk; the server holds what arrives against it."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from spillway.errors import DigestMismatch, Unreachable
from spillway.stores import parts
from spillway.stores.base import read_all
from spillway.stores.parts import MIB, FileBody
from spillway.stores.s3 import S3Store
from spillway.stores.s3_endpoint import S3Endpoint
from spillway.testing.contracts import sha256_hex
from spillway.testing.faulty_proxy import FaultyProxy

CONTENT = hashlib.shake_256(b"content").digest(3 * MIB + 1000)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SINGLE_MAX_BYTES", MIB)
    monkeypatch.setattr(parts, "PART_WISH_BYTES", 5 * MIB)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(CONTENT)
    return path


def put(store: S3Store, content: Path | bytes) -> None:
    store.put("x", FileBody(content, len(CONTENT)), size_bytes=len(CONTENT), sha256=sha256_hex(CONTENT))


@pytest.mark.parametrize("kind", ["file", "bytes"])
def test_it_goes_in_one_request_and_is_known_by_its_digest(
    store: S3Store, proxy: FaultyProxy, file: Path, kind: str
) -> None:
    put(store, file if kind == "file" else CONTENT)
    assert [request.split(" ")[0] for request in proxy.requests] == ["PUT"]
    assert read_all(store, "x") == CONTENT
    head = store.head("x")
    assert head is not None
    assert (head.size_bytes, head.sha256) == (len(CONTENT), sha256_hex(CONTENT))


def test_one_that_is_larger_than_a_request_should_be_goes_in_parts(
    store: S3Store, proxy: FaultyProxy, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "STREAMED_MAX_BYTES", len(CONTENT) - 1)
    put(store, file)
    assert any("partNumber=1" in request for request in proxy.requests)
    assert read_all(store, "x") == CONTENT


def test_a_file_that_has_other_bytes_by_now_is_refused_by_the_server(direct: S3Store, file: Path) -> None:
    file.write_bytes(CONTENT[:-1] + b"!")
    with pytest.raises(DigestMismatch):
        put(direct, file)
    assert direct.head("x") is None


def test_bytes_that_are_damaged_on_the_way_are_sent_again(retrying: S3Store, proxy: FaultyProxy, file: Path) -> None:
    proxy.damage("PUT")
    put(retrying, file)
    assert len(proxy.requests) == 2
    assert read_all(retrying, "x") == CONTENT


@pytest.mark.parametrize(
    ("now", "seen"), [(CONTENT[:MIB], f"that of {MIB}"), (None, "that of 0, then: .*No such file")]
)
def test_a_file_that_is_shorter_or_gone_by_now_is_told_at_once(
    direct: S3Store, file: Path, now: bytes | None, seen: str
) -> None:
    file.unlink()
    if now is not None:
        file.write_bytes(now)
    with pytest.raises(DigestMismatch, match=rf"{file}: expected digest that of {len(CONTENT)} bytes, .*{seen}"):
        put(direct, file)
    assert direct.head("x") is None


def test_a_request_whose_answer_is_lost_is_made_again_from_the_beginning(
    retrying: S3Store, proxy: FaultyProxy, file: Path
) -> None:
    proxy.spoil("PUT", lambda answer: None)
    put(retrying, file)
    assert read_all(retrying, "x") == CONTENT


def test_a_server_that_stays_away_is_unreachable(store: S3Store, proxy: FaultyProxy, file: Path) -> None:
    proxy.refuse("PUT", None)
    with pytest.raises(Unreachable):
        put(store, file)


def test_a_bucket_with_a_host_of_its_own_is_asked_for_at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on AWS, whose address no test can have."""
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append(self.requestline)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = S3Endpoint(url=None, region="here", access_key="key", secret_key="secret", attempts=1)
        monkeypatch.setattr(S3Endpoint, "bucket_url", lambda self, bucket: f"http://127.0.0.1:{server.server_port}")
        S3Store(name="s3://b@aws", endpoint=endpoint, bucket="b")._requests.check_bucket()
        server.shutdown()
    assert asked == ["HEAD / HTTP/1.1"]
