"""What every ``ImageRegistry`` promises, as a class of tests that an implementation inherits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from spillway.errors import DigestMismatch, Missing
from spillway.registries.base import Descriptor, ImageRegistry, Manifest
from spillway.registries.digest import digest_of
from spillway.testing.images import OCI_INDEX, OCI_MANIFEST, descriptor, image_manifest, put_image


class ImageRegistryContract:
    """Inherit, and give a fixture ``registry``; each test works in a repository of its own."""

    @pytest.fixture
    def repository(self) -> str:
        return f"contract/{uuid4().hex}"

    def test_a_repository_that_does_not_exist_has_no_tags(self, registry: ImageRegistry, repository: str) -> None:
        assert registry.tags(repository) == ()

    def test_an_unknown_tag_or_digest_resolves_to_nothing(self, registry: ImageRegistry, repository: str) -> None:
        put_image(registry, repository, "v1")
        assert registry.resolve(repository, "v2") is None
        assert registry.resolve(repository, digest_of(b"other")) is None

    def test_an_unknown_manifest_is_missing(self, registry: ImageRegistry, repository: str) -> None:
        with pytest.raises(Missing, match=f"image '{repository}:v1' is not in"):
            registry.manifest(repository, "v1")

    def test_a_manifest_comes_back_byte_for_byte_by_tag_and_by_digest(
        self, registry: ImageRegistry, repository: str
    ) -> None:
        put = put_image(registry, repository, "v1")
        assert registry.manifest(repository, "v1") == put
        assert registry.manifest(repository, put.digest) == put
        assert registry.resolve(repository, "v1") == put.digest
        assert registry.resolve(repository, put.digest) == put.digest

    def test_a_manifest_put_by_digest_has_no_tag(self, registry: ImageRegistry, repository: str) -> None:
        put = put_image(registry, repository, None)
        assert registry.tags(repository) == ()
        assert registry.resolve(repository, put.digest) == put.digest

    def test_a_tag_moves_to_the_manifest_that_was_put_last(self, registry: ImageRegistry, repository: str) -> None:
        first = put_image(registry, repository, "v1", layer=b"one")
        second = put_image(registry, repository, "v1", layer=b"two")
        assert registry.resolve(repository, "v1") == second.digest
        assert registry.manifest(repository, first.digest) == first
        assert registry.tags(repository) == ("v1",)

    def test_every_tag_is_listed(self, registry: ImageRegistry, repository: str) -> None:
        for number in range(12):
            put_image(registry, repository, f"v{number}")
        assert sorted(registry.tags(repository)) == sorted(f"v{number}" for number in range(12))

    def test_a_manifest_whose_content_is_not_there_is_refused(self, registry: ImageRegistry, repository: str) -> None:
        put_image(registry, repository, "v1")
        body = image_manifest(config=b"config of nowhere", layers=[b"layer of nowhere"])
        with pytest.raises(Missing):
            registry.put_manifest(
                repository, "v2", Manifest(digest=digest_of(body), media_type=OCI_MANIFEST, body=body)
            )
        assert registry.resolve(repository, "v2") is None

    def test_an_index_whose_child_is_not_there_is_refused(self, registry: ImageRegistry, repository: str) -> None:
        put_image(registry, repository, "v1")
        child = descriptor(image_manifest(config=b"{}", layers=[]), OCI_MANIFEST)
        body = json.dumps({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [child]}).encode()
        with pytest.raises(Missing):
            registry.put_manifest(repository, "v2", Manifest(digest=digest_of(body), media_type=OCI_INDEX, body=body))
        assert registry.resolve(repository, "v2") is None

    @pytest.mark.parametrize("size_bytes", [0, 1, 3 * 2**20 + 7], ids=["empty", "one byte", "many chunks"])
    def test_a_blob_comes_back_whole(self, registry: ImageRegistry, repository: str, size_bytes: int) -> None:
        body = b"\x1f\x8b" + bytes(size_bytes - 2) if size_bytes > 1 else bytes(size_bytes)
        assert not registry.has_blob(repository, digest_of(body))
        registry.put_blob(repository, digest_of(body), _chunks(body), size_bytes=len(body))
        assert registry.has_blob(repository, digest_of(body))
        assert b"".join(registry.read_blob(repository, digest_of(body))) == body

    def test_an_unknown_blob_is_missing(self, registry: ImageRegistry, repository: str) -> None:
        with pytest.raises(Missing, match="blob"):
            list(registry.read_blob(repository, digest_of(b"nothing")))

    @pytest.mark.parametrize("body", [b"wrong bytes!", b"short"], ids=["other bytes", "too few bytes"])
    def test_bytes_that_are_not_what_was_promised_are_refused_and_never_stored(
        self, registry: ImageRegistry, repository: str, body: bytes
    ) -> None:
        promised = b"right bytes!"
        with pytest.raises(DigestMismatch):
            registry.put_blob(repository, digest_of(promised), iter([body]), size_bytes=len(promised))
        assert not registry.has_blob(repository, digest_of(promised))

    def test_a_blob_of_another_repository_is_taken_from_there_without_a_byte(
        self, registry: ImageRegistry, repository: str
    ) -> None:
        body = b"a layer that two repositories share"
        registry.put_blob(repository, digest_of(body), iter([body]), size_bytes=len(body))
        other, never = f"{repository}-other", iter(list[bytes]())
        assert not registry.put_blob(other, digest_of(body), never, size_bytes=len(body), mount_from=repository)
        assert b"".join(registry.read_blob(other, digest_of(body))) == body

    def test_a_blob_that_the_other_repository_does_not_have_after_all_is_sent(
        self, registry: ImageRegistry, repository: str
    ) -> None:
        body = b"a layer of one repository"
        assert registry.put_blob(
            repository, digest_of(body), iter([body]), size_bytes=len(body), mount_from=f"{repository}-other"
        )
        assert registry.has_blob(repository, digest_of(body))

    def test_a_description_says_what_a_tag_points_at(self, registry: ImageRegistry, repository: str) -> None:
        put = put_image(registry, repository, "v1")
        described = Descriptor(digest=put.digest, size_bytes=len(put.body), media_type=OCI_MANIFEST)
        assert registry.describe(repository, "v1") == registry.describe(repository, put.digest) == described
        assert registry.describe(repository, "v2") is None

    def test_a_deleted_image_is_gone_with_all_its_tags_and_no_other(
        self, registry: ImageRegistry, repository: str
    ) -> None:
        put = put_image(registry, repository, "v1")
        registry.put_manifest(repository, "same", put)
        kept = put_image(registry, repository, "v2", layer=b"another layer")
        for _ in range(2):
            registry.delete(repository, put.digest)
        assert registry.tags(repository) == ("v2",)
        assert registry.resolve(repository, put.digest) is None
        assert registry.manifest(repository, "v2") == kept

    def test_many_threads_may_put_images_at_once(self, registry: ImageRegistry, repository: str) -> None:
        with ThreadPoolExecutor(8) as threads:
            put = list(
                threads.map(lambda n: put_image(registry, repository, f"v{n}", layer=b"layer %d" % n), range(16))
            )
        assert [registry.resolve(repository, f"v{number}") for number in range(16)] == [m.digest for m in put]
        assert len(registry.tags(repository)) == 16


def _chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 2**16):
        yield body[start : start + 2**16]
