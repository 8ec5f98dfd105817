"""Images between two registries against ``skopeo sync``, both as processes of their own."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.testing.image_sites import OURS, PEERS, REPOSITORY, ImageSites
from spillway.testing.images import OCI_MANIFEST, image_manifest
from spillway.testing.paired import measure, paired

TAGS = [f"torch2.{number}" for number in range(100)]
BASE_BYTES = (20_000_000, 8_000_000, 2_000_000)
"""Layers that every tag shares."""
OWN_BYTES = 200_000
ROUND_TRIP_SECONDS = 0.05


def push(sites: ImageSites, tags: Iterable[str], version: str) -> None:
    """Each tag gets a layer and a configuration of its own upon the shared ones."""
    registry = sites.servers["onprem"].client()
    shared = [random.Random(size).randbytes(size) for size in BASE_BYTES]

    def put(blob: bytes) -> None:
        if not registry.has_blob(REPOSITORY, digest_of(blob)):
            registry.put_blob(REPOSITORY, digest_of(blob), iter([blob]), size_bytes=len(blob))

    def one(tag: str) -> None:
        own = random.Random(f"{version} {tag}").randbytes(OWN_BYTES)
        config = f'{{"architecture": "amd64", "os": "linux", "config": {{"Labels": {{"tag": "{tag}"}}}}}}'.encode()
        put(own)
        put(config)
        body = image_manifest(config=config, layers=[*shared, own])
        registry.put_manifest(REPOSITORY, tag, Manifest(digest=digest_of(body), media_type=OCI_MANIFEST, body=body))

    for blob in shared:
        put(blob)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(one, tags))


def digests(sites: ImageSites, name: str, prefix: str) -> Mapping[str, str | None]:
    registry = sites.servers[name].client(prefix=prefix)
    return {tag: registry.resolve(REPOSITORY, tag) for tag in registry.tags(REPOSITORY)}


def whole(sites: ImageSites, prefix: str) -> None:
    assert digests(sites, "cloud", prefix) == digests(sites, "onprem", "")


@pytest.fixture(scope="module")
def home(image_sites: ImageSites) -> ImageSites:
    push(image_sites, TAGS, "v1")
    return image_sites


@pytest.mark.slow
def test_a_hundred_tags(home: ImageSites) -> None:
    full = paired(
        "images_100_tags_full",
        home.mirror(before=home.empty, after=lambda: whole(home, OURS)),
        home.skopeo(before=home.empty, after=lambda: whole(home, PEERS)),
    )
    full.report(wall=0.45, cpu=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("far", [False, True], ids=["loopback", "50 ms"])
def test_a_hundred_tags_of_which_none_changed(home: ImageSites, far: bool) -> None:
    home.near()
    for contender in (home.mirror(), home.skopeo()):
        measure(contender)
    if far:
        home.far(round_trip_seconds=ROUND_TRIP_SECONDS)
    name = "images_100_tags_noop_50ms" if far else "images_100_tags_noop"
    paired(name, home.mirror(), home.skopeo()).report(wall=0.04 if far else 0.60)


@pytest.mark.slow
def test_a_hundred_tags_of_which_one_has_another_layer(home: ImageSites) -> None:
    home.near()
    versions = iter(range(2, 1000))

    def change() -> None:
        push(home, TAGS[:1], f"v{next(versions)}")

    for contender in (home.mirror(), home.skopeo()):
        measure(contender)
    pairs = paired(
        "images_100_tags_one_layer",
        home.mirror(before=change, after=lambda: whole(home, OURS)),
        home.skopeo(before=change),
    )
    pairs.report(wall=0.60)
