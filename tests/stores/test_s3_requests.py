"""Where requests to S3 go: AWS's own addresses, another region, a proxy; scripted, for no test server has them."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from spillway.errors import ConfigError, RequestRefused, Unreachable
from spillway.sandbox.certificates import issue
from spillway.stores.base import read_all
from spillway.stores.s3 import S3Endpoint, S3Store
from spillway.testing.s3_server import S3Server
from spillway.testing.scripted_http import Answer, Call, ScriptedServer


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def endpoint(url: str | None, **fields: object) -> S3Endpoint:
    return S3Endpoint(url=url, region="us-east-1", access_key="AK", secret_key="secret", **fields)


def store(at: S3Endpoint) -> S3Store:
    return S3Store(name="s3://b@cloud", endpoint=at, bucket="b")


@pytest.mark.parametrize(
    ("bucket", "url"),
    [
        ("datasets", "https://datasets.s3.eu-central-1.amazonaws.com"),
        ("data.sets", "https://s3.eu-central-1.amazonaws.com/data.sets"),
    ],
)
def test_on_aws_a_bucket_is_where_its_name_allows(bucket: str, url: str) -> None:
    aws = S3Endpoint(url=None, region="eu-central-1", access_key="AK", secret_key="secret")
    assert aws.bucket_url(bucket) == url


def test_elsewhere_a_bucket_is_a_folder_of_the_endpoint() -> None:
    assert endpoint("https://store:9000/").bucket_url("datasets") == "https://store:9000/datasets"


@pytest.mark.parametrize(("status", "code"), [(301, "PermanentRedirect"), (400, "AuthorizationHeaderMalformed")])
def test_a_bucket_of_another_region_is_found_there(scripted: ScriptedServer, status: int, code: str) -> None:
    def answer(call: Call) -> Answer:
        if "/us-east-1/s3" in call.headers["authorization"]:
            body = f"<Error><Code>{code}</Code></Error>".encode()
            return Answer(status=status, body=body, headers={"x-amz-bucket-region": "eu-central-1"})
        return Answer(body=b"found", headers={"ETag": '"1"'})

    scripted.script = answer
    assert read_all(store(endpoint(scripted.url)), "x") == b"found"
    assert "/eu-central-1/s3/" in scripted.calls[1].headers["authorization"]


def test_a_redirect_to_nowhere_is_an_error_and_not_followed(scripted: ScriptedServer) -> None:
    scripted.script = lambda call: Answer(status=307, headers={"Location": "http://elsewhere/"})
    with pytest.raises(RequestRefused, match="HTTP 307"):
        read_all(store(endpoint(scripted.url)), "x")
    assert len(scripted.calls) == 1


def test_temporary_credentials_send_and_sign_their_token(scripted: ScriptedServer) -> None:
    scripted.script = lambda call: Answer(body=b"1", headers={"ETag": '"1"'})
    read_all(store(endpoint(scripted.url, session_token="a token")), "x")
    (call,) = scripted.calls
    assert call.headers["x-amz-security-token"] == "a token"
    assert "x-amz-security-token" in call.headers["authorization"]


def test_where_the_environment_names_a_proxy_everything_goes_through_it(
    s3_server: S3Server, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3_server.new_bucket()
    s3_server.open(bucket).put("d/x", b"1234", size_bytes=4)
    seen: list[str] = []

    def relay(call: Call) -> Answer:
        import http.client

        seen.append(call.path)
        upstream = http.client.HTTPConnection(call.headers["host"], timeout=30)
        upstream.request(call.method, call.path.partition(call.headers["host"])[2], call.body, dict(call.headers))
        reply = upstream.getresponse()
        answer = Answer(status=reply.status, body=reply.read(), headers={"ETag": reply.headers.get("ETag", "")})
        upstream.close()
        return answer

    scripted.script = relay
    monkeypatch.setenv("http_proxy", scripted.url)
    monkeypatch.setenv("no_proxy", "")
    proxied = s3_server.open(bucket)
    assert [entry.key for entry in proxied.list()] == ["d/x"]
    assert read_all(proxied, "d/x") == b"1234"
    proxied.put("d/y", b"5", size_bytes=1)
    assert all(path.startswith(f"http://127.0.0.1:{s3_server.base_port}/{bucket}") for path in seen)
    assert len(seen) == 3


def test_behind_a_proxy_a_body_that_breaks_off_goes_on_where_it_was(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(call: Call) -> Answer:
        begin = int(call.headers.get("range", "bytes=0-")[6:-1])
        return Answer(body=b"0123456789"[begin:], headers={"ETag": '"1"'}, cut_bytes=max(7 - begin, 0))

    scripted.script = cut
    monkeypatch.setenv("http_proxy", scripted.url)
    monkeypatch.setenv("no_proxy", "")
    assert b"".join(store(endpoint("http://store:9000")).read("x")) == b"0123456789"
    assert [call.headers.get("range") for call in scripted.calls] == [None, "bytes=3-", "bytes=6-", "bytes=9-"]


def test_behind_a_proxy_a_certificate_that_cannot_be_verified_is_a_matter_of_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = issue(tmp_path / "server").server
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(issued.certificate, issued.key)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while not connection.recv(4096).endswith(b"\r\n\r\n"):
                pass
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with suppress(OSError):
                tls.wrap_socket(connection, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("no_proxy", "")
        thread = Thread(target=serve, daemon=True)
        thread.start()
        another = issue(tmp_path / "another").ca_file
        with pytest.raises(
            ConfigError, match=r"s3://b@cloud: its certificate cannot be verified \(.*\); give the file"
        ):
            store(endpoint("https://127.0.0.1:1", ca_file=another)).head("x")
        thread.join(60)


def test_a_proxy_that_is_not_there_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(Unreachable, match="Failed to connect to proxy"):
        store(endpoint("http://store:9000", attempts=1)).head("x")


@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:1"], ids=["straight", "behind a proxy"])
def test_authorities_that_cannot_be_read_are_told_before_any_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    monkeypatch.setenv("no_proxy", "")
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in (tmp_path / "none.pem", tmp_path / "ca.pem"):
        with pytest.raises(ConfigError, match=rf"the certificates in '{file}' cannot be read"):
            store(endpoint("https://127.0.0.1:1", ca_file=file)).head("x")
