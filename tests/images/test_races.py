"""Tags that are written once, and several mirrors of one image at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spillway.errors import DigestMismatch, Missing, PreconditionFailed
from spillway.images.gate import require_image
from spillway.images.mirror import mirror
from spillway.registries.base import Manifest
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.testing.images import put_image, put_index


class ImmutableLayout(LayoutRegistry):
    """A registry whose tags are written once, as cloud registries can be told to; counts the refusals."""

    refusals = 0

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        if reference in self.tags(repository):
            self.refusals += 1
            raise PreconditionFailed(self.name, reference, "the tag may be written")
        super().put_manifest(repository, reference, manifest)


def test_the_same_digest_under_an_immutable_tag_is_a_success_without_a_push(tmp_path: Path) -> None:
    source, destination = LayoutRegistry(tmp_path / "source"), ImmutableLayout(tmp_path / "destination")
    put_image(source, "train", "v1")
    for _ in range(2):
        assert mirror(source, destination, repository="train", reference="v1", move_tag=True).conflict is None
    assert destination.refusals == 0


def test_another_digest_under_an_immutable_tag_is_a_conflict_even_if_tags_may_be_moved(tmp_path: Path) -> None:
    source, destination = LayoutRegistry(tmp_path / "source"), ImmutableLayout(tmp_path / "destination")
    old = put_image(destination, "train", "v1", layer=b"old")
    put_image(source, "train", "v1", layer=b"new")
    report = mirror(source, destination, repository="train", reference="v1", move_tag=True)
    assert (report.conflict, destination.refusals) == (old.digest, 1)


class LateTag(ImmutableLayout):
    """Another mirror sets the tag between our look and our push."""

    def resolve(self, repository: str, reference: str) -> str | None:
        return None if reference == "v1" and self.refusals == 0 else super().resolve(repository, reference)


def test_a_tag_that_appears_with_the_same_digest_between_look_and_push_is_a_success(tmp_path: Path) -> None:
    source, destination = LayoutRegistry(tmp_path / "source"), LateTag(tmp_path / "destination")
    image = put_image(source, "train", "v1")
    put_image(destination, "train", "v1")
    report = mirror(source, destination, repository="train", reference="v1")
    assert (report.digest, report.conflict, destination.refusals) == (image.digest, None, 1)


def test_two_mirrors_of_one_image_at_the_same_time_both_succeed(
    onprem: HttpRegistry, cloud: HttpRegistry, repository: str
) -> None:
    index = put_index(onprem, repository, "v1")
    with ThreadPoolExecutor(4) as threads:
        reports = list(threads.map(lambda _: mirror(onprem, cloud, repository=repository, reference="v1"), range(4)))
    assert {(report.digest, report.conflict) for report in reports} == {(index.digest, None)}
    require_image(cloud, repository, index.digest)


class RacedLayout(LayoutRegistry):
    """A registry that another copy of the same image is written to at this moment, as real ones then behave."""

    raced_manifest = raced_blob = False

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        if not self.raced_manifest:
            self.raced_manifest = True
            raise Missing("content", "of the other copy", self.name)
        super().put_manifest(repository, reference, manifest)

    def put_blob(
        self, repository: str, digest: str, chunks: Iterator[bytes], *, size_bytes: int, mount_from: str | None = None
    ) -> bool:
        super().put_blob(repository, digest, chunks, size_bytes=size_bytes)
        if not self.raced_blob:
            self.raced_blob = True
            raise DigestMismatch("blob", expected=digest, seen="half of the other copy")
        return True


def test_refusals_that_come_from_another_copy_of_the_same_image_are_overcome(tmp_path: Path) -> None:
    source, destination = LayoutRegistry(tmp_path / "source"), RacedLayout(tmp_path / "destination")
    image = put_image(source, "train", "v1")
    mirror(source, destination, repository="train", reference="v1")
    assert (destination.raced_manifest, destination.raced_blob) == (True, True)
    require_image(destination, "train", image.digest)
