"""Registries that fail in the middle: every tag is there in the end or named, and no half of one is ever visible."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from spillway.errors import StoreFull
from spillway.images.gate import require_image
from spillway.images.mirror import mirror
from spillway.images.report import RepositoryReport
from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries import upload
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.testing.disks import filled, small_disk
from spillway.testing.faulty_proxy import Answer, FaultyProxy, faulty_proxy
from spillway.testing.images import put_image
from spillway.testing.registry_server import RegistryServer

MIB = 2**20
TAGS = ("v1", "v2", "v3", "v4")


@dataclass(frozen=True, kw_only=True)
class Ends:
    """Two real registries, each behind a proxy that spoils what a test tells it to."""

    source: HttpRegistry
    destination: HttpRegistry
    source_proxy: FaultyProxy
    destination_proxy: FaultyProxy
    servers: Mapping[str, RegistryServer]
    rules: MirroredRepository

    def sync(self) -> RepositoryReport:
        plan = plan_repository(self.source, self.destination, self.rules)
        return mirror_tags(self.source, self.destination, plan, refused={})

    def push(self, *tags: str, size_bytes: int = 1000) -> None:
        """Images with a layer each, past the proxy."""
        registry = self.servers["onprem"].client()
        for tag in tags:
            layer = random.Random(tag).randbytes(size_bytes)
            put_image(registry, self.rules.repository, tag, layer=layer)

    def require_all(self, *tags: str) -> None:
        """All of each tag is at the destination as it is at the source, past the proxies."""
        home, copy = self.servers["onprem"].client(), self.servers["cloud"].client()
        assert sorted(copy.tags(self.rules.repository)) == sorted(tags)
        for tag in tags:
            assert copy.manifest(self.rules.repository, tag) == home.manifest(self.rules.repository, tag)
            require_image(copy, self.rules.repository, str(copy.resolve(self.rules.repository, tag)))


@pytest.fixture
def ends(registries: Mapping[str, RegistryServer], repository: str) -> Iterator[Ends]:
    with ExitStack() as running:
        proxies = {name: running.enter_context(faulty_proxy(server.url)) for name, server in registries.items()}

        def client(name: str) -> HttpRegistry:
            server = registries[name]
            return HttpRegistry(name=name, url=proxies[name].url, username=server.username, password=server.password)

        yield Ends(
            source=client("onprem"),
            destination=client("cloud"),
            source_proxy=proxies["onprem"],
            destination_proxy=proxies["cloud"],
            servers=registries,
            rules=MirroredRepository(repository=repository),
        )


def reset(answer: Answer) -> None:
    """The connection ends without an answer; the server has done its work."""


def cut(answer: Answer) -> Answer:
    return replace(answer, sent=len(answer.body) // 2)


def other_bytes(answer: Answer) -> Answer:
    return replace(answer, body=answer.body[::-1])


PASSING = {
    "a listing of tags": ("destination", "GET", "/tags/list", 1),
    "what a tag is": ("destination", "HEAD", "/manifests/v", 2),
    "whether a layer is there": ("destination", "HEAD", "/blobs/", 2),
    "the begin of an upload": ("destination", "POST", "/uploads/", 2),
    "the end of an upload": ("destination", "PUT", "/uploads/", 1),
    "a manifest that is put": ("destination", "PUT", "/manifests/", 1),
    "a manifest that is read": ("source", "GET", "/manifests/", 2),
    "a layer that is read": ("source", "GET", "/blobs/", 2),
}


@pytest.mark.parametrize(("end", "method", "path", "times"), PASSING.values(), ids=PASSING.keys())
def test_connections_that_are_reset_delay_a_mirroring_only(
    ends: Ends, end: str, method: str, path: str, times: int
) -> None:
    ends.push(*TAGS)
    ends.push("old")
    ends.sync()
    ends.push("v5")
    proxy = ends.destination_proxy if end == "destination" else ends.source_proxy
    proxy.spoil(method, reset, times=times, path=path)
    assert ends.sync().ok
    ends.require_all(*TAGS, "old", "v5")


def test_layers_that_are_cut_off_are_gone_on_with_and_arrive_whole(ends: Ends) -> None:
    ends.push(*TAGS, size_bytes=3 * MIB)
    ends.source_proxy.spoil("GET", cut, times=3, path="/blobs/")
    assert ends.sync().ok
    ends.require_all(*TAGS)


def test_a_layer_of_other_bytes_fails_its_tag_and_the_next_run_has_it(ends: Ends) -> None:
    ends.push("v1")
    digest = digest_of(random.Random("v1").randbytes(1000))
    ends.push("v2", "v3")
    ends.source_proxy.spoil("GET", other_bytes, path=f"/blobs/{digest}")
    (failure,) = ends.sync().failures
    assert failure.startswith("v1: ") and digest in failure
    ends.require_all("v2", "v3")
    assert ends.sync().ok
    ends.require_all("v1", "v2", "v3")


def test_a_tag_that_is_listed_and_gone_is_named_and_the_others_arrive(ends: Ends) -> None:
    ends.push(*TAGS)
    ends.source_proxy.refuse("GET", Answer(404), path="/manifests/v3")
    (failure,) = ends.sync().failures
    assert failure.startswith("v3: tag 'v3' is not in registry onprem")
    ends.require_all("v1", "v2", "v4")


def test_a_right_that_is_missing_for_one_layer_fails_its_tag_without_a_second_try(ends: Ends) -> None:
    ends.push(*TAGS)
    digest = digest_of(random.Random("v2").randbytes(1000))
    ends.source_proxy.refuse("GET", Answer(403), times=9, path=digest)
    (failure,) = ends.sync().failures
    assert failure.startswith("v2: ") and "403" in failure
    assert sum(digest in asked for asked in ends.source_proxy.requests) == 1
    ends.require_all("v1", "v3", "v4")


STORMS = {
    "429": Answer(429, headers=(("Retry-After", "1"),)),
    "503 that says when": Answer(503, headers=(("Retry-After", "1"),)),
    "503": Answer(503),
}


@pytest.mark.parametrize("answer", STORMS.values(), ids=STORMS.keys())
def test_a_storm_of_refusals_is_sat_out(ends: Ends, answer: Answer) -> None:
    ends.push(*TAGS)
    for method in ("HEAD", "POST", "PUT"):
        ends.destination_proxy.refuse(method, answer, times=3)
    for method in ("HEAD", "GET"):
        ends.source_proxy.refuse(method, answer, times=2)
    assert ends.sync().ok
    ends.require_all(*TAGS)


@pytest.mark.parametrize("end", ["onprem", "cloud"])
def test_a_registry_that_is_stopped_in_mid_run_and_comes_back_delays_the_mirroring_only(ends: Ends, end: str) -> None:
    ends.push(*TAGS, size_bytes=2 * MIB)
    server, outages = ends.servers[end], []

    def restart(answer: Answer) -> Answer | None:
        if not outages:
            outages.append(end)
            with server.outage():
                pass
        return None

    proxy = ends.source_proxy if end == "onprem" else ends.destination_proxy
    proxy.spoil("GET" if end == "onprem" else "POST", restart, path="/blobs/")
    assert ends.sync().ok
    assert outages == [end]
    ends.require_all(*TAGS)


def test_what_is_verified_is_not_sent_again_after_a_run_that_failed(ends: Ends, no_pauses: None) -> None:
    ends.push(*TAGS, size_bytes=MIB)
    ends.destination_proxy.refuse("PUT", None, times=99, path="/manifests/")
    assert len(ends.sync().failures) == 4
    sent = ends.destination_proxy.bytes_received
    assert sent > 4 * MIB
    ends.destination_proxy.forget()
    assert ends.sync().ok
    assert ends.destination_proxy.bytes_received - sent < MIB
    ends.require_all(*TAGS)


NOT_DELETED = {
    "a tag": "/manifests/v-old",
    "an image, where no tag goes alone": "/manifests/sha256:",
}


@pytest.mark.parametrize("path", NOT_DELETED.values(), ids=NOT_DELETED.keys())
def test_a_tag_that_may_not_be_deleted_fails_by_name_and_goes_once_it_may(ends: Ends, path: str) -> None:
    ends.push(*TAGS)
    ends.sync()
    put_image(ends.servers["cloud"].client(), ends.rules.repository, "v-old", layer=b"old")
    deleting = replace(ends, rules=replace(ends.rules, delete=True))
    ends.destination_proxy.refuse("DELETE", Answer(403), times=9, path=path)
    (failure,) = deleting.sync().failures
    assert failure.startswith("v-old: ") and "403" in failure
    assert "v-old" in ends.servers["cloud"].client().tags(ends.rules.repository)
    ends.destination_proxy.forget()
    ends.destination_proxy.refuse("DELETE", Answer(503), times=2)
    assert deleting.sync().ok
    ends.require_all(*TAGS)


# -- large layers go in parts -----------------------------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", MIB)


LOST_PARTS = {"that never arrived": Answer(503), "of which nothing is known": None}


@pytest.mark.parametrize("answer", LOST_PARTS.values(), ids=LOST_PARTS.keys())
def test_a_part_that_was_not_taken_is_sent_again_and_those_before_it_are_not(
    ends: Ends, small_parts: None, answer: Answer | None
) -> None:
    ends.push("v1", size_bytes=8 * MIB)
    for _ in range(2):
        ends.destination_proxy.refuse("PATCH", answer)
    assert ends.sync().ok
    ends.require_all("v1")
    patches = [asked for asked in ends.destination_proxy.requests if asked.startswith("PATCH")]
    assert len(patches) == 8 + 2
    assert ends.destination_proxy.bytes_received < 11 * MIB


def test_an_upload_that_the_registry_forgot_begins_anew(ends: Ends, small_parts: None) -> None:
    ends.push("v1", size_bytes=4 * MIB)
    ends.destination_proxy.spoil("PATCH", reset)
    assert ends.sync().ok
    ends.require_all("v1")
    assert (
        sum("POST" in asked for asked in ends.destination_proxy.requests) == 3
    )  # the layer twice, and the configuration


def test_a_registry_that_takes_no_parts_gets_the_layer_in_one_piece(ends: Ends, small_parts: None) -> None:
    ends.push("v1", size_bytes=4 * MIB)
    ends.destination_proxy.refuse("PATCH", Answer(405), times=9)
    assert ends.sync().ok
    ends.require_all("v1")
    assert sum("PATCH" in asked for asked in ends.destination_proxy.requests) == 1


# -- a full disk ------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_named_nothing_half_is_visible_and_the_next_run_completes(ends: Ends, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=24m") as disk:
        server = RegistryServer(name="cloud", state_dir=disk / "registry")
        server.start()
        try:
            ends.push("v1", size_bytes=8 * MIB)
            with filled(disk, left_bytes=3 * MIB), pytest.raises(StoreFull, match="No space left"):
                mirror(ends.source, server.client(), repository=ends.rules.repository, reference="v1")
            assert server.client().tags(ends.rules.repository) == ()
            report = mirror(ends.source, server.client(), repository=ends.rules.repository, reference="v1")
            require_image(server.client(), ends.rules.repository, report.digest)
        finally:
            server.stop()
