"""Mirroring all tags of a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.errors import Unreachable
from spillway.images.repository import mirror_repository
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.testing.images import put_image


@pytest.fixture
def source(tmp_path: Path) -> LayoutRegistry:
    """Five tags, the third of which has lost its layer."""
    registry = LayoutRegistry(tmp_path)
    for number in range(1, 6):
        put_image(registry, "train", f"v{number}", layer=b"layer of %d" % number)
    lost = digest_of(b"layer of 3").removeprefix("sha256:")
    (tmp_path / "train/blobs/sha256" / lost).unlink()
    return registry


def test_one_broken_tag_is_named_and_keeps_no_other_from_being_mirrored(
    source: LayoutRegistry, cloud: HttpRegistry, repository: str
) -> None:
    report = mirror_repository(source, cloud, repository="train", destination_repository=repository)
    assert [done.reference for done in report.mirrored] == ["v1", "v2", "v4", "v5"]
    assert sorted(cloud.tags(repository)) == ["v1", "v2", "v4", "v5"]
    assert list(report.failed) == ["v3"]
    assert digest_of(b"layer of 3") in report.failed["v3"]
    assert not report.ok


def test_the_next_run_moves_only_what_was_broken(source: LayoutRegistry, cloud: HttpRegistry, repository: str) -> None:
    mirror_repository(source, cloud, repository="train", destination_repository=repository)
    source.put_blob("train", digest_of(b"layer of 3"), iter([b"layer of 3"]), size_bytes=10)
    report = mirror_repository(source, cloud, repository="train", destination_repository=repository)
    assert (report.ok, report.failed) == (True, {})
    assert [done.reference for done in report.mirrored if done.bytes_copied] == ["v3"]


def test_unwanted_tags_and_signatures_are_skipped_with_the_reason(
    tmp_path: Path, cloud: HttpRegistry, repository: str
) -> None:
    source = LayoutRegistry(tmp_path)
    signature = f"sha256-{'0' * 64}.sig"
    for tag in ("torch2.0-cuda11.8", "torch2.1-cuda12.1", "nightly", signature):
        put_image(source, "train", tag)
    report = mirror_repository(
        source, cloud, repository="train", patterns=["torch*", "jax*"], destination_repository=repository
    )
    assert [done.reference for done in report.mirrored] == ["torch2.0-cuda11.8", "torch2.1-cuda12.1"]
    assert report.skipped == {
        "nightly": "matches none of the wanted patterns",
        signature: "belongs to another image (a signature or an attestation)",
    }
    assert report.ok


def test_a_tag_that_stays_at_another_digest_makes_the_run_not_ok(
    tmp_path: Path, cloud: HttpRegistry, repository: str
) -> None:
    source = LayoutRegistry(tmp_path)
    put_image(source, "train", "v1", layer=b"new")
    put_image(cloud, repository, "v1", layer=b"old")
    report = mirror_repository(source, cloud, repository="train", destination_repository=repository)
    assert (report.ok, report.failed) == (False, {})


def test_a_registry_that_does_not_answer_ends_the_run(tmp_path: Path) -> None:
    source = LayoutRegistry(tmp_path)
    put_image(source, "train", "v1")
    with pytest.raises(Unreachable):
        mirror_repository(source, HttpRegistry(name="cloud", url="http://127.0.0.1:1"), repository="train")
