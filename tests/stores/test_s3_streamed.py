"""A file of known digest goes in one request, straight from the disk; the server holds what arrives against it."""

from __future__ import annotations

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from spillway.errors import DigestMismatch, Missing, Unreachable
from spillway.stores import parts
from spillway.stores.base import read_all
from spillway.stores.parts import MIB, FileBody
from spillway.stores.s3 import S3Store
from spillway.stores.s3_endpoint import S3Endpoint
from spillway.testing.contracts import sha256_hex
from spillway.testing.faulty_proxy import FaultyProxy, xml_error
from spillway.testing.s3_server import S3Server

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


def test_a_file_that_has_other_bytes_by_now_is_refused_here_until_the_server_is_known_to_do_it(
    direct: S3Store, file: Path
) -> None:
    file.write_bytes(CONTENT[:-1] + b"!")
    other = sha256_hex(file.read_bytes())
    with pytest.raises(DigestMismatch, match=f"{file}: expected digest {sha256_hex(CONTENT)}, the bytes have {other}"):
        put(direct, file)
    assert direct.head("x") is None
    put(direct, CONTENT)
    with pytest.raises(DigestMismatch, match="x: expected digest that was sent with it"):
        direct.put("x", FileBody(file, len(CONTENT)), size_bytes=len(CONTENT), sha256=sha256_hex(CONTENT))
    assert read_all(direct, "x") == CONTENT


def test_bytes_that_are_damaged_on_the_way_are_sent_again(retrying: S3Store, proxy: FaultyProxy, file: Path) -> None:
    proxy.damage("PUT")
    put(retrying, file)
    assert len(proxy.requests) == 2
    assert read_all(retrying, "x") == CONTENT


@pytest.mark.parametrize(("now", "seen"), [(CONTENT[:MIB], f"that of {MIB}"), (None, "none: .*No such file")])
def test_a_file_that_is_shorter_or_gone_by_now_is_told_at_once(
    direct: S3Store, file: Path, now: bytes | None, seen: str
) -> None:
    file.unlink()
    if now is not None:
        file.write_bytes(now)
    with pytest.raises(DigestMismatch, match=rf"{file}: expected digest {sha256_hex(CONTENT)}, .*{seen}"):
        put(direct, file)
    assert direct.head("x") is None


def test_a_request_whose_answer_is_lost_is_made_again_from_the_beginning(
    retrying: S3Store, proxy: FaultyProxy, file: Path
) -> None:
    proxy.spoil("PUT", lambda answer: None)
    put(retrying, file)
    assert read_all(retrying, "x") == CONTENT


def test_behind_a_proxy_it_is_the_file_that_is_told_of_and_not_the_store(
    s3_server: S3Server, proxy: FaultyProxy, bucket: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.setenv("no_proxy", "")
    store = S3Store(name="s3://b@onprem", endpoint=s3_server.endpoint(attempts=3), bucket=bucket)
    put(store, file)
    assert any(request.startswith("PUT http://") for request in proxy.requests)
    assert read_all(store, "x") == CONTENT
    file.write_bytes(CONTENT[:MIB])
    with pytest.raises(DigestMismatch, match=f"{file}"):
        put(store, file)
    store.delete(["x"])


def test_on_a_connection_that_the_server_has_closed_it_begins_anew(file: Path) -> None:
    """What the first connection took of it must not be missing on the second."""
    received: list[int] = []
    closed = Event()

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            received.append(len(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            self.close_connection = True  # without a word of it: it looks as if it were kept

        def finish(self) -> None:
            super().finish()
            self.connection.close()
            closed.set()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        endpoint = S3Endpoint(url=url, region="here", access_key="key", secret_key="secret", attempts=1)
        store = S3Store(name="s3://b@here", endpoint=endpoint, bucket="b")
        store.put("small", b"1", size_bytes=1)
        assert closed.wait(60)
        put(store, file)
        server.shutdown()
    assert received == [1, len(CONTENT)]


def test_a_key_that_is_gone_is_deleted_also_where_a_server_answers_404(store: S3Store, proxy: FaultyProxy) -> None:
    proxy.refuse("DELETE", xml_error(404, "NoSuchKey"))
    assert store.delete(["x"]) == {}
    proxy.refuse("DELETE", xml_error(404, "NoSuchBucket"))
    with pytest.raises(Missing, match="bucket 'test-"):
        store.delete(["x"])
    proxy.refuse("DELETE", xml_error(403, "AccessDenied"))
    assert store.delete(["x"]) == {"x": "AccessDenied: as told"}


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
