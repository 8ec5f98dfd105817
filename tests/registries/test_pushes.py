"""Manifests and layers that are pushed to a scripted server."""

from __future__ import annotations

import pytest

from spillway.errors import (
    DigestMismatch,
    PreconditionFailed,
    Unreachable,
)
from spillway.registries.digest import digest_of
from spillway.testing.scripted_http import Answer, Call, ScriptedServer
from spillway.testing.scripted_registry import MANIFEST, client, errors

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
