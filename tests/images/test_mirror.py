"""Mirroring between two real registries."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import urllib3

from spillway.errors import DigestMismatch, Missing, Unreachable
from spillway.images.gate import require_image
from spillway.images.mirror import MirrorReport, image_tree, mirror
from spillway.registries.base import Manifest
from spillway.registries.content import blobs
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.testing.images import put_image, put_index
from spillway.testing.registry_server import RegistryServer

MIB = 2**20


def config_bytes(image: Manifest) -> int:
    return blobs(image)[0].size_bytes


def delete(server: RegistryServer, path: str) -> None:
    """Remove a manifest or blob behind everybody's back."""
    headers = urllib3.make_headers(basic_auth=f"{server.username}:{server.password}")
    answer = urllib3.request("DELETE", f"{server.url}/v2/{path}", headers=headers)
    assert answer.status == 202, answer.data


def test_an_image_has_the_same_digest_on_both_sides(onprem: HttpRegistry, cloud: HttpRegistry, repository: str) -> None:
    image = put_image(onprem, repository, "v1", layer=b"12345678")
    report = mirror(onprem, cloud, repository=repository, reference="v1")
    assert report == MirrorReport(
        repository=repository,
        reference="v1",
        digest=image.digest,
        manifests_copied=1,
        blobs_copied=2,
        bytes_copied=8 + config_bytes(image),
    )
    assert cloud.manifest(repository, "v1") == onprem.manifest(repository, "v1")
    require_image(cloud, repository, image.digest)


def test_a_second_run_moves_nothing(onprem: HttpRegistry, cloud: HttpRegistry, repository: str) -> None:
    image = put_image(onprem, repository, "v1")
    mirror(onprem, cloud, repository=repository, reference="v1")
    assert mirror(onprem, cloud, repository=repository, reference="v1") == MirrorReport(
        repository=repository, reference="v1", digest=image.digest, blobs_present=2
    )


def test_a_new_tag_moves_only_the_layers_that_are_new(
    onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    put_image(onprem, repository, "v1", layer=b"shared layer")
    mirror(onprem, cloud, repository=repository, reference="v1")
    second = put_image(onprem, repository, "v2", layer=b"shared layer")
    report = mirror(onprem, cloud, repository=repository, reference="v2")
    assert (report.blobs_present, report.blobs_copied, report.bytes_copied) == (1, 1, config_bytes(second))


def test_an_index_arrives_whole_with_every_platform_and_attestation(
    onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    index = put_index(onprem, repository, "v1")
    report = mirror(onprem, cloud, repository=repository, reference="v1")
    assert (report.digest, report.manifests_copied) == (index.digest, 5)
    assert list(image_tree(cloud, repository, index.digest)) == list(image_tree(onprem, repository, index.digest))
    require_image(cloud, repository, index.digest)


def test_a_tag_whose_index_lost_a_child_is_repaired(
    registries: Mapping[str, RegistryServer], onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    index = put_index(onprem, repository, "v1")
    mirror(onprem, cloud, repository=repository, reference="v1")
    arm64 = list(image_tree(onprem, repository, index.digest))[2]
    delete(registries["cloud"], f"mirror/{repository}/manifests/{arm64.digest}")
    report = mirror(onprem, cloud, repository=repository, reference="v1")
    assert (report.manifests_copied, report.bytes_copied) == (1, 0)
    assert cloud.manifest(repository, arm64.digest) == arm64


def test_an_image_that_lost_a_layer_is_repaired(
    registries: Mapping[str, RegistryServer], onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    image = put_image(onprem, repository, "v1", layer=b"the lost layer")
    mirror(onprem, cloud, repository=repository, reference="v1")
    lost = digest_of(b"the lost layer")
    delete(registries["cloud"], f"mirror/{repository}/blobs/{lost}")
    report = mirror(onprem, cloud, repository=repository, reference="v1")
    assert (report.blobs_copied, report.bytes_copied) == (1, len(b"the lost layer"))
    require_image(cloud, repository, image.digest)


def test_an_image_given_by_digest_arrives_without_a_tag(
    onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    image = put_image(onprem, repository, "v1")
    mirror(onprem, cloud, repository=repository, reference=image.digest)
    assert cloud.tags(repository) == ()
    require_image(cloud, repository, image.digest)


def test_an_unknown_tag_is_missing_and_the_error_names_the_ones_that_exist(
    onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    put_image(onprem, repository, "numpy2.4-py3.11")
    put_image(onprem, repository, "other")
    with pytest.raises(Missing) as caught:
        mirror(onprem, cloud, repository=repository, reference="numpy2.3-py3.11")
    assert str(caught.value) == (
        f"image '{repository}:numpy2.3-py3.11' is not in {onprem.name}; "
        "its tags: numpy2.4-py3.11, other. Did you mean 'numpy2.4-py3.11'?"
    )
    with pytest.raises(Missing, match="has no tags there"):
        mirror(onprem, cloud, repository=f"{repository}-typo", reference="v1")


def test_a_tag_that_has_another_digest_is_a_conflict_and_left_alone(
    onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    old = put_image(cloud, repository, "v1", layer=b"old")
    new = put_image(onprem, repository, "v1", layer=b"new")
    report = mirror(onprem, cloud, repository=repository, reference="v1")
    assert (report.digest, report.conflict) == (new.digest, old.digest)
    assert cloud.resolve(repository, "v1") == old.digest
    require_image(cloud, repository, new.digest)


def test_a_tag_that_may_be_moved_is_moved(onprem: HttpRegistry, cloud: HttpRegistry, repository: str) -> None:
    put_image(cloud, repository, "v1", layer=b"old")
    new = put_image(onprem, repository, "v1", layer=b"new")
    report = mirror(onprem, cloud, repository=repository, reference="v1", move_tag=True)
    assert (report.conflict, cloud.resolve(repository, "v1")) == (None, new.digest)


def test_a_dry_run_says_what_it_would_move_and_moves_nothing(
    onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    put_image(onprem, repository, "v1")
    planned = mirror(onprem, cloud, repository=repository, reference="v1", dry_run=True)
    assert (cloud.tags(repository), cloud.resolve(repository, planned.digest)) == ((), None)
    done = mirror(onprem, cloud, repository=repository, reference="v1")
    assert (planned.dry_run, planned.blobs_copied, planned.bytes_copied, planned.manifests_copied) == (
        True,
        done.blobs_copied,
        done.bytes_copied,
        done.manifests_copied,
    )


def test_a_corrupt_layer_of_the_source_is_never_visible_at_the_destination(
    tmp_path: Path, cloud: HttpRegistry, repository: str
) -> None:
    source = LayoutRegistry(tmp_path)
    put_image(source, repository, "v1", layer=b"good bytes")
    layer = tmp_path / repository / "blobs/sha256" / digest_of(b"good bytes").removeprefix("sha256:")
    layer.write_bytes(b"evil bytes")
    with pytest.raises(DigestMismatch, match="blob"):
        mirror(source, cloud, repository=repository, reference="v1")
    assert (cloud.tags(repository), cloud.has_blob(repository, digest_of(b"evil bytes"))) == ((), False)


class InterruptedLayout(LayoutRegistry):
    """An image layout that is read up to the fourth MiB of a blob when something happens, at each reading."""

    def __init__(self, root: Path, happens: Callable[[], None]) -> None:
        super().__init__(root)
        self._happens = happens

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        for number, chunk in enumerate(super().read_blob(repository, digest), start=1):
            yield chunk
            if number == 4:
                self._happens()


def test_a_destination_that_is_restarted_in_the_middle_delays_the_copy_only(
    registries: Mapping[str, RegistryServer], tmp_path: Path, cloud: HttpRegistry, repository: str
) -> None:
    outages: list[RegistryServer] = []

    def restart_once() -> None:
        if not outages:
            outages.append(registries["cloud"])
            with registries["cloud"].outage():
                pass

    source = InterruptedLayout(tmp_path, restart_once)
    image = put_image(source, repository, "v1", layer=random.Random(1).randbytes(16 * MIB))
    mirror(source, cloud, repository=repository, reference="v1")
    assert len(outages) == 1
    require_image(cloud, repository, image.digest)


def test_a_copy_that_is_cut_off_leaves_no_image_and_the_next_run_completes_it(
    registries: Mapping[str, RegistryServer],
    tmp_path: Path,
    cloud: HttpRegistry,
    repository: str,
    no_pauses: None,
) -> None:
    source = InterruptedLayout(tmp_path, registries["cloud"].kill)
    image = put_image(source, repository, "v1", layer=random.Random(2).randbytes(16 * MIB))
    with pytest.raises(Unreachable, match="registry cloud"):
        mirror(source, cloud, repository=repository, reference="v1")
    registries["cloud"].start()
    assert (cloud.tags(repository), cloud.resolve(repository, image.digest)) == ((), None)
    report = mirror(LayoutRegistry(tmp_path), cloud, repository=repository, reference="v1")
    assert report.bytes_copied >= 16 * MIB
    require_image(cloud, repository, image.digest)


def test_a_source_without_all_of_the_image_is_named_with_what_it_lacks(
    tmp_path: Path, cloud: HttpRegistry, repository: str
) -> None:
    source = LayoutRegistry(tmp_path)
    put_image(source, repository, "v1", layer=b"the lost layer")
    lost = digest_of(b"the lost layer")
    (tmp_path / repository / "blobs/sha256" / lost.removeprefix("sha256:")).unlink()
    with pytest.raises(Missing, match=f"blob '{repository}@{lost}' is not in image layout"):
        mirror(source, cloud, repository=repository, reference="v1")
    assert cloud.tags(repository) == ()
