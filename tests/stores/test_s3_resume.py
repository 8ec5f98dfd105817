"""An upload in parts that was cut off goes on where it was, and never with parts of other bytes."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import spillway
from spillway.errors import DigestMismatch, Unreachable
from spillway.stores import parts, s3_upload
from spillway.stores.base import read_all
from spillway.stores.parts import MIB, PromisedBody, RangedBody
from spillway.stores.s3 import S3Store
from spillway.testing.contracts import race, sha256_hex
from spillway.testing.faulty_proxy import Answer, FaultyProxy, faulty_proxy
from spillway.testing.s3_server import S3Server

PART = 5 * MIB
CONTENT = hashlib.shake_256(b"content").digest(4 * PART + 1000)
PARTS = 5
RACERS = 4


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as small as the protocol has them, one after the other."""
    monkeypatch.setattr(parts, "SINGLE_MAX_BYTES", MIB)
    monkeypatch.setattr(parts, "PART_WISH_BYTES", PART)
    monkeypatch.setattr(s3_upload, "PARTS_IN_FLIGHT", 1)


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.new_bucket()


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    with faulty_proxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture
def store(proxy: FaultyProxy, s3_server: S3Server, bucket: str) -> Iterator[S3Store]:
    """The bucket through the proxy, one attempt a request."""
    store = S3Store(name="s3://b@onprem", endpoint=s3_server.endpoint(url=proxy.url, attempts=1), bucket=bucket)
    yield store
    assert unfinished(s3_server, bucket) == []
    assert [entry.key for entry in store.list(".spillway/uploads/")] == []
    store.delete([entry.key for entry in store.list()])


def unfinished(server: S3Server, bucket: str) -> list[str]:
    uploads = server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    return [upload["Key"] for upload in uploads]


def body(content: bytes = CONTENT) -> RangedBody:
    return RangedBody(len(content), lambda start, length: [content[start : start + length]])


def put(store: S3Store, content: bytes = CONTENT, **fields: object) -> None:
    store.put("x", body(content), size_bytes=len(content), **fields)


def cut_off(store: S3Store, proxy: FaultyProxy, after_parts: int, **fields: object) -> None:
    """Begin an upload that has sent so many parts when the store goes away."""

    def until(answer: Answer) -> Answer | None:
        return answer if len(sent(proxy)) <= after_parts else None

    proxy.spoil("PUT", until, times=after_parts + 2)
    with pytest.raises(Unreachable):
        put(store, **fields)
    proxy.forget()


def sent(proxy: FaultyProxy) -> list[str]:
    return [request for request in proxy.requests if request.startswith("PUT") and "partNumber=" in request]


def test_only_the_parts_that_are_not_there_are_sent(store: S3Store, proxy: FaultyProxy) -> None:
    cut_off(store, proxy, 3, metadata={"origin": "instrument 7"})
    put(store, metadata={"origin": "instrument 7"})
    head = store.head("x")
    assert head is not None
    # The fourth arrived although its answer was lost.
    assert (len(sent(proxy)), head.metadata) == (1, {"origin": "instrument 7"})
    assert sha256_hex(read_all(store, "x")) == sha256_hex(CONTENT)


def test_parts_whose_etags_are_no_md5_are_sent_again_and_arrive_whole(store: S3Store, proxy: FaultyProxy) -> None:
    """A server that encrypts what it stores gives such etags."""

    def encrypted(answer: Answer) -> Answer:
        return replace(answer, body=re.sub(rb"<ETag>[^<]*<", b"<ETag>" + b"0" * 32 + b"<", answer.body))

    cut_off(store, proxy, 3)
    proxy.spoil("GET", encrypted, path="uploadId=")
    put(store)
    assert len(sent(proxy)) == PARTS
    assert sha256_hex(read_all(store, "x")) == sha256_hex(CONTENT)


def test_parts_of_other_bytes_under_the_same_name_are_sent_anew(store: S3Store, proxy: FaultyProxy) -> None:
    cut_off(store, proxy, 3)
    other = CONTENT[:PART] + hashlib.shake_256(b"other").digest(PART) + CONTENT[2 * PART :]
    put(store, other)
    assert len(sent(proxy)) == 2, "the second differs and the fifth was never sent"
    assert sha256_hex(read_all(store, "x")) == sha256_hex(other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"sha256": sha256_hex(CONTENT)}, {"sha256": sha256_hex(CONTENT), "content_type": "text/x-test"}),
        ({"metadata": {"version": "1"}}, {"metadata": {"version": "2"}}),
        ({}, {"sha256": sha256_hex(CONTENT)}),
    ],
    ids=["content type", "metadata", "digest"],
)
def test_an_upload_that_was_asked_for_otherwise_is_begun_anew_and_the_older_parts_are_removed(
    store: S3Store, proxy: FaultyProxy, before: dict[str, object], after: dict[str, object]
) -> None:
    cut_off(store, proxy, 2, **before)
    put(store, **after)
    head = store.head("x")
    assert head is not None
    assert len(sent(proxy)) == PARTS
    assert head.sha256 == after.get("sha256")
    assert dict(head.metadata) == after.get("metadata", {})
    if "content_type" in after:
        assert head.content_type == after["content_type"]


def test_an_upload_that_somebody_removed_is_begun_anew(
    store: S3Store, proxy: FaultyProxy, s3_server: S3Server, bucket: str
) -> None:
    cut_off(store, proxy, 2)
    client = s3_server.client()
    (upload,) = client.list_multipart_uploads(Bucket=bucket)["Uploads"]
    client.abort_multipart_upload(Bucket=bucket, Key="x", UploadId=upload["UploadId"])
    put(store)
    assert (len(sent(proxy)), sha256_hex(read_all(store, "x"))) == (PARTS, sha256_hex(CONTENT))


def test_an_upload_that_nobody_takes_up_is_listed_and_forgotten_with_its_note(
    store: S3Store, proxy: FaultyProxy, s3_server: S3Server, bucket: str
) -> None:
    begun = datetime.now(UTC)
    cut_off(store, proxy, 2)
    (upload,) = store.uploads()
    assert list(store.uploads("x")) == [upload]
    assert list(store.uploads("y")) == []
    assert (upload.key, abs(upload.begun_at - begun) < timedelta(minutes=2)) == ("x", True)
    store.abort(upload)
    store.abort(upload)
    assert unfinished(s3_server, bucket) == []
    assert list(store.list(".spillway/uploads/")) == []
    put(store)
    assert (len(sent(proxy)), sha256_hex(read_all(store, "x"))) == (PARTS, sha256_hex(CONTENT))


def test_a_note_that_nobody_can_read_costs_a_whole_upload_and_no_more(store: S3Store, proxy: FaultyProxy) -> None:
    cut_off(store, proxy, 2)
    (note,) = store.list(".spillway/uploads/")
    kept = read_all(store, note.key)
    store.put(note.key, b"{", size_bytes=1)
    put(store)
    assert sha256_hex(read_all(store, "x")) == sha256_hex(CONTENT)
    # The upload itself is out of reach for us now; the bucket's own clean-up has it.
    store.put(note.key.rpartition("/")[0] + "/older", kept, size_bytes=len(kept))
    put(store)


def test_bytes_that_turn_out_wrong_leave_no_parts_to_go_on_with(store: S3Store) -> None:
    with pytest.raises(DigestMismatch):
        put(store, sha256=sha256_hex(b"other"))
    assert store.head("x") is None


def test_two_uploads_of_the_same_at_the_same_time_end_with_one_object(store: S3Store, proxy: FaultyProxy) -> None:
    begun: list[str] = []

    def read(start: int, length: int) -> list[bytes]:
        if start == 3 * PART and not begun:
            begun.append("other")
            put(store)
        return [CONTENT[start : start + length]]

    store.put("x", RangedBody(len(CONTENT), read), size_bytes=len(CONTENT))
    assert (len(sent(proxy)), sha256_hex(read_all(store, "x"))) == (PARTS + 1, sha256_hex(CONTENT))


def test_of_uploads_of_the_same_that_begin_at_once_one_completes_and_the_others_say_so(
    store: S3Store, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked for a note, and found none, before any leaves one."""
    take_up, looked, all_looked = s3_upload.PartsUpload._take_up, [], Barrier(RACERS)

    def look(upload: s3_upload.PartsUpload, key: str) -> Mapping[str, Any]:
        condition = take_up(upload, key)
        if upload not in looked:
            looked.append(upload)
            all_looked.wait(60)
        return condition

    send, all_joined = s3_upload.PartsUpload._send, Barrier(RACERS)

    def send_together(upload: s3_upload.PartsUpload, body: PromisedBody, size: int) -> Any:
        all_joined.wait(60)
        return send(upload, body, size)

    monkeypatch.setattr(s3_upload.PartsUpload, "_take_up", look)
    monkeypatch.setattr(s3_upload.PartsUpload, "_send", send_together)
    winners = race(RACERS, lambda number: store.put("x", body(), size_bytes=len(CONTENT), if_absent=True))
    assert (len(winners), sha256_hex(read_all(store, "x"))) == (1, sha256_hex(CONTENT))
    completed = {request for request in proxy.requests if request.startswith("POST") and "uploadId=" in request}
    assert len(completed) == 1, "they joined one upload"


KILLED = """
import hashlib, sys, time
from pathlib import Path
from spillway.stores import parts, s3_upload
from spillway.stores.parts import MIB, RangedBody
from spillway.stores.s3 import open_store

parts.SINGLE_MAX_BYTES, parts.PART_WISH_BYTES, s3_upload.PARTS_IN_FLIGHT = MIB, 5 * MIB, 1
endpoint_url, bucket, access_key, secret_key = sys.argv[1:]
content = hashlib.shake_256(b"content").digest(4 * 5 * MIB + 1000)

def read(start, length):
    if start == 15 * MIB:
        print("reached", flush=True)
        time.sleep(600)
    return [content[start : start + length]]

store = open_store(
    name="onprem", bucket=bucket, endpoint_url=endpoint_url, region="us-east-1", access_key=access_key,
    secret_key=secret_key,
)
store.put("x", RangedBody(len(content), read), size_bytes=len(content))
"""


def test_what_a_killed_process_had_sent_is_not_sent_again(
    store: S3Store, proxy: FaultyProxy, s3_server: S3Server, bucket: str
) -> None:
    who = s3_server.admin
    environment = {**os.environ, "PYTHONPATH": str(Path(spillway.__file__).parents[1])}
    argv = [sys.executable, "-c", KILLED, s3_server.endpoint_url, bucket, who.access_key, who.secret_key]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reached\n"
        process.send_signal(signal.SIGKILL)
    assert store.head("x") is None
    put(store)
    assert (len(sent(proxy)), sha256_hex(read_all(store, "x"))) == (PARTS - 3, sha256_hex(CONTENT))
