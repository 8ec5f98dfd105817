"""Signatures that have no tag: a source that lists what refers to an image, which the real test registry cannot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from spillway.errors import Unreachable
from spillway.images.gate import require_image
from spillway.images.report import RepositoryReport, TagFate
from spillway.images.repository import mirror_tags, plan_repository
from spillway.model import MirroredRepository
from spillway.registries.base import Manifest
from spillway.registries.content import children
from spillway.registries.http import HttpRegistry
from spillway.testing.faulty_proxy import Answer, FaultyProxy, faulty_proxy
from spillway.testing.images import OCI_MANIFEST, descriptor, put_image
from spillway.testing.registry_server import RegistryServer


def client(server: RegistryServer, proxy: FaultyProxy) -> HttpRegistry:
    return HttpRegistry(name=server.name, url=proxy.url, username=server.username, password=server.password)


def listing(*manifests: Manifest, following: str | None = None) -> Answer:
    """How a registry answers that lists what refers to an image."""
    entries = [descriptor(manifest.body, OCI_MANIFEST) for manifest in manifests]
    headers = (("Link", f'<{following}>; rel="next"'),) if following else ()
    return Answer(200, json.dumps({"schemaVersion": 2, "manifests": entries}).encode(), headers)


def sync(source: HttpRegistry, destination: HttpRegistry, rules: MirroredRepository) -> RepositoryReport:
    return mirror_tags(source, destination, plan_repository(source, destination, rules), refused={})


def test_what_a_scripted_list_says_refers_to_an_image_goes_with_it_once_and_gets_its_tag(
    registries: Mapping[str, RegistryServer], cloud: HttpRegistry, repository: str
) -> None:
    home = registries["onprem"].client()
    image = put_image(home, repository, "v1")
    signatures = [put_image(home, repository, None, layer=b"signature %d" % number) for number in range(2)]
    rules = MirroredRepository(repository=repository)
    with faulty_proxy(registries["onprem"].url) as proxy:
        source = client(registries["onprem"], proxy)
        for _ in range(2):
            proxy.refuse("GET", listing(signatures[0], following="/v2/next/referrers/page2"), path="/referrers/sha256")
            proxy.refuse("GET", listing(signatures[1]), path="/referrers/page2")
        first, second = sync(source, cloud, rules), sync(source, cloud, rules)
    assert (first.ok, first.count(TagFate.COPIED), second.count(TagFate.COPIED)) == (True, 2, 0)
    for signature in signatures:
        require_image(cloud, repository, signature.digest)
    tag = image.digest.replace(":", "-")
    assert {entry.digest for entry in children(cloud.manifest(repository, tag))} == {s.digest for s in signatures}


def test_the_list_that_the_mirror_itself_wrote_stays_where_tags_are_deleted(
    registries: Mapping[str, RegistryServer], cloud: HttpRegistry, repository: str
) -> None:
    home = registries["onprem"].client()
    image, signature = put_image(home, repository, "v1"), put_image(home, repository, None, layer=b"signature")
    rules = MirroredRepository(repository=repository, delete=True)
    with faulty_proxy(registries["onprem"].url) as proxy:
        source = client(registries["onprem"], proxy)
        for _ in range(3):
            proxy.refuse("GET", listing(signature), path="/referrers/sha256")
            assert sync(source, cloud, rules).ok
            assert set(cloud.tags(repository)) == {"v1", image.digest.replace(":", "-")}


def test_a_rule_without_signatures_does_not_ask_a_scripted_list(
    registries: Mapping[str, RegistryServer], cloud: HttpRegistry, repository: str
) -> None:
    put_image(registries["onprem"].client(), repository, "v1")
    with faulty_proxy(registries["onprem"].url) as proxy:
        source = client(registries["onprem"], proxy)
        assert sync(source, cloud, replace(MirroredRepository(repository=repository), signatures=False)).ok
        assert not [asked for asked in proxy.requests if "/referrers/" in asked]


def test_a_scripted_list_that_never_ends_is_an_error(registries: Mapping[str, RegistryServer], repository: str) -> None:
    image = put_image(registries["onprem"].client(), repository, "v1")
    with faulty_proxy(registries["onprem"].url) as proxy:
        page = f"/v2/{repository}/referrers/{image.digest}"
        proxy.refuse("GET", listing(following=page), times=2, path="/referrers/")
        with pytest.raises(Unreachable, match="never ends"):
            client(registries["onprem"], proxy).referrers(repository, image.digest)
