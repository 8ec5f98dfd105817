"""What the S3 store makes of answers that a healthy server does not give; a proxy spoils those of a real one."""

from __future__ import annotations

import hashlib
import re
import ssl
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from unittest.mock import ANY

import pytest

from spillway.errors import (
    AccessDenied,
    ConfigError,
    IncompleteListing,
    PreconditionFailed,
    RequestRefused,
    StoreFull,
    Unreachable,
)
from spillway.sandbox.certificates import issue
from spillway.stores.base import read_all
from spillway.stores.parts import MIB
from spillway.stores.s3 import S3Endpoint, S3Store
from spillway.testing.contracts import chunked
from spillway.testing.faulty_proxy import Answer, FaultyProxy, xml_error
from spillway.testing.s3_server import S3Server


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "InternalError"), (502, "BadGateway"), (503, "SlowDown"), (503, "ServiceUnavailable"), (429, "TooMany")],
)
def test_a_server_that_is_busy_or_broken_is_unreachable(
    store: S3Store, proxy: FaultyProxy, status: int, code: str
) -> None:
    proxy.spoil("GET", lambda answer: xml_error(status, code, ("Retry-After", "7")))
    with pytest.raises(Unreachable, match=f"s3://b@onprem is unreachable: .*{code}.*HTTP {status}") as failure:
        read_all(store, "x")
    assert failure.value.retry_after_seconds == 7


def test_a_server_without_space_says_so(store: S3Store, proxy: FaultyProxy) -> None:
    proxy.spoil("PUT", lambda answer: xml_error(507, "StorageFull"))
    with pytest.raises(StoreFull, match="free or add space"):
        store.put("x", b"1", size_bytes=1)


def test_a_clock_that_is_off_is_not_blamed_on_the_keys(store: S3Store, proxy: FaultyProxy) -> None:
    proxy.spoil("PUT", lambda answer: xml_error(403, "RequestTimeTooSkewed"))
    with pytest.raises(AccessDenied, match=r"RequestTimeTooSkewed: as told; synchronise this machine's clock"):
        store.put("x", b"1", size_bytes=1)


def test_a_request_that_the_server_calls_wrong_is_not_retried_as_if_it_were_down(
    store: S3Store, proxy: FaultyProxy
) -> None:
    proxy.spoil("PUT", lambda answer: xml_error(400, "InvalidRequest"))
    with pytest.raises(RequestRefused, match=r"s3://b@onprem refused x: PutObject: InvalidRequest: as told") as failure:
        store.put("x", b"1", size_bytes=1)
    assert not failure.value.retry_helps


def test_metadata_that_the_protocol_cannot_carry_is_an_error_of_the_request(store: S3Store) -> None:
    with pytest.raises(RequestRefused, match=r"s3://b@onprem refused x: .*Non ascii") as failure:
        store.put("x", b"1", size_bytes=1, metadata={"unit": "µm"})
    assert not failure.value.retry_helps


def test_a_certificate_that_cannot_be_verified_is_a_matter_of_configuration_and_not_waited_for(tmp_path: Path) -> None:
    issued = issue(tmp_path / "server").server
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate, issued.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = S3Endpoint(
            url=f"https://127.0.0.1:{server.server_port}",
            region="here",
            access_key="key",
            secret_key="secret",
            ca_file=issue(tmp_path / "another").ca_file,
            attempts=1,
        )
        with pytest.raises(ConfigError, match=r"s3://b@onprem: its certificate cannot be verified \(.*\); ") as failure:
            S3Store(name="s3://b@onprem", endpoint=endpoint, bucket="b").head("x")
        server.shutdown()
    assert not failure.value.retry_helps


def test_a_server_that_does_not_answer_is_unreachable(store: S3Store, proxy: FaultyProxy) -> None:
    proxy.spoil("HEAD", lambda answer: None)
    with pytest.raises(Unreachable):
        store.head("x")


def test_a_passing_fault_is_retried_by_the_client(retrying: S3Store, proxy: FaultyProxy) -> None:
    proxy.spoil("PUT", lambda answer: xml_error(503, "SlowDown"))
    retrying.put("x", b"1", size_bytes=1)
    assert read_all(retrying, "x") == b"1"


def test_a_body_that_breaks_off_goes_on_where_it_was(store: S3Store, direct: S3Store, proxy: FaultyProxy) -> None:
    direct.put("x", b"0123456789", size_bytes=10)
    proxy.spoil("GET", lambda answer: replace(answer, sent=4), times=2)
    assert read_all(store, "x") == b"0123456789"
    proxy.spoil("GET", lambda answer: replace(answer, sent=2))
    assert b"".join(store.read("x", start=3, length=5)) == b"34567"


def test_a_body_that_breaks_off_again_and_again_is_unreachable_and_not_a_short_object(
    store: S3Store, direct: S3Store, proxy: FaultyProxy
) -> None:
    direct.put("x", b"0123456789", size_bytes=10)
    proxy.spoil("GET", lambda answer: replace(answer, sent=1), times=4)
    with pytest.raises(Unreachable):
        read_all(store, "x")


def test_a_body_that_breaks_off_does_not_go_on_with_another_version(
    store: S3Store, direct: S3Store, proxy: FaultyProxy
) -> None:
    direct.put("x", b"0123456789", size_bytes=10)

    def overwrite(answer: Answer) -> Answer:
        direct.put("x", b"9876543210", size_bytes=10)
        return replace(answer, sent=4)

    proxy.spoil("GET", overwrite)
    with pytest.raises(PreconditionFailed):
        read_all(store, "x")


def edited(pattern: bytes, replacement: bytes):
    def edit(answer: Answer) -> Answer:
        body, count = re.subn(pattern, replacement, answer.body, flags=re.DOTALL)
        assert count, answer.body
        return replace(answer, body=body)

    return edit


@pytest.mark.parametrize(
    "spoil",
    [
        edited(b"<IsTruncated>false", b"<IsTruncated>true"),
        edited(b"<Contents>.*?</Contents>", b""),
        edited(b"(<Contents>.*?</Contents>).*</Contents>", rb"\1\1"),
        edited(b"<Key>d/1</Key>", b"<Key>e/1</Key>"),
    ],
    ids=["more follows, but not from where", "objects left out", "an object twice", "an object not asked for"],
)
def test_a_listing_that_contradicts_itself_is_refused(
    store: S3Store, direct: S3Store, proxy: FaultyProxy, spoil
) -> None:
    for key in ("d/1", "d/2"):
        direct.put(key, b"x", size_bytes=1)
    proxy.spoil("GET", spoil)
    with pytest.raises(IncompleteListing, match=r"s3://b@onprem: the listing of 'd/' cannot be trusted"):
        list(store.list("d/"))


def test_a_continuation_that_leads_in_a_circle_is_refused(store: S3Store, direct: S3Store, proxy: FaultyProxy) -> None:
    direct.put("d/1", b"x", size_bytes=1)
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>"
    entries = edited(b"<Contents>.*</Contents>|<KeyCount>.</KeyCount>", b"")
    for _ in range(2):
        proxy.spoil("GET", lambda answer: edited(b"<IsTruncated>.*</IsTruncated>", more)(entries(answer)))
    with pytest.raises(IncompleteListing, match="more follows, but not from where"):
        list(store.list("d/"))


@pytest.mark.parametrize("size", [10, 17 * MIB], ids=["small", "large"])
def test_a_conditional_write_whose_answer_was_lost_still_counts_as_won(
    retrying: S3Store, proxy: FaultyProxy, size: int
) -> None:
    lost = "PUT" if size < MIB else "POST"
    if lost == "POST":
        proxy.spoil("POST", lambda answer: answer)
    proxy.spoil(lost, lambda answer: None)
    stored = retrying.put("x", b"1" * size, size_bytes=size, if_absent=True)
    head = retrying.head("x")
    assert head is not None
    assert (stored.etag, stored.sha256, stored.metadata) == (head.etag, head.sha256, {})


@pytest.mark.parametrize("conditional", [True, False], ids=["conditional", "unconditional"])
def test_an_upload_that_the_server_forgot_when_it_was_complete_still_counts_as_stored(
    retrying: S3Store, direct: S3Store, proxy: FaultyProxy, conditional: bool
) -> None:
    proxy.spoil("POST", lambda answer: answer)
    proxy.spoil("POST", lambda answer: None)
    proxy.spoil("POST", lambda answer: xml_error(404, "NoSuchUpload"))
    content = hashlib.shake_256(b"x").digest(17 * MIB)
    stored = retrying.put("x", content, size_bytes=len(content), if_absent=conditional)
    assert (direct.head("x"), stored.sha256) == (stored._replace(modified_at=ANY), hashlib.sha256(content).hexdigest())


def test_an_upload_that_the_server_forgot_before_it_was_complete_is_not_taken_for_what_was_there(
    store: S3Store, direct: S3Store, proxy: FaultyProxy
) -> None:
    content = hashlib.shake_256(b"x").digest(17 * MIB)
    direct.put("x", content, size_bytes=len(content))
    proxy.spoil("PUT", lambda answer: answer)
    proxy.spoil("PUT", lambda answer: xml_error(404, "NoSuchUpload"))
    with pytest.raises(Unreachable, match="it no longer knows the upload of 'x' that it began"):
        store.put("x", content, size_bytes=len(content))


def test_a_version_that_is_gone_when_it_is_to_be_replaced_has_failed_its_condition(
    store: S3Store, proxy: FaultyProxy
) -> None:
    """Some servers answer 404, and others 412 as to a version that is another one."""
    proxy.spoil("PUT", lambda answer: xml_error(404, "NoSuchKey"))
    with pytest.raises(PreconditionFailed):
        store.put("x", b"1", size_bytes=1, if_match="0" * 32)


def test_a_lost_race_is_not_taken_for_a_lost_answer(retrying: S3Store, direct: S3Store, proxy: FaultyProxy) -> None:
    direct.put("x", b"1", size_bytes=1, if_absent=True)
    proxy.spoil("PUT", lambda answer: xml_error(503, "SlowDown"))
    with pytest.raises(PreconditionFailed):
        retrying.put("x", b"1", size_bytes=1, if_absent=True)


@pytest.mark.parametrize("answer", [None, xml_error(500, "InternalError")], ids=["no answer", "an error"])
def test_an_upload_that_fails_in_its_second_part_leaves_no_object_and_no_parts(
    store: S3Store, s3_server: S3Server, bucket: str, proxy: FaultyProxy, answer: Answer | None
) -> None:
    proxy.spoil("PUT", lambda good: good)
    proxy.spoil("PUT", lambda good: answer)
    content = hashlib.shake_256(b"x").digest(17 * MIB)
    with pytest.raises(Unreachable):
        store.put("x", chunked(content, MIB), size_bytes=len(content))
    assert store.head("x") is None
    assert s3_server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
