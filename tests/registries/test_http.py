"""Tags and digests, as a scripted server tells them."""

from __future__ import annotations

import json

import pytest

from spillway.errors import (
    Unreachable,
)
from spillway.registries.digest import digest_of
from spillway.testing.images import OCI_MANIFEST
from spillway.testing.scripted_http import Answer, Call, ScriptedServer
from spillway.testing.scripted_registry import BODY, FOUND, MANIFEST, client


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
