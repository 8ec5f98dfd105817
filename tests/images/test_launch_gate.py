"""No pod starts from an image that its site's registry does not hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spillway.errors import LaunchRefused, Unreachable
from spillway.images.gate import require_environment, require_image
from spillway.images.reference import ImageReference
from spillway.registries.base import Manifest
from spillway.registries.digest import digest_of
from spillway.registries.http import HttpRegistry
from spillway.registries.layout import LayoutRegistry
from spillway.testing.images import put_image, put_index


@pytest.fixture
def registry(tmp_path: Path) -> LayoutRegistry:
    return LayoutRegistry(tmp_path)


def blob_file(root: Path, digest: str) -> Path:
    return root / "train/blobs/sha256" / digest.removeprefix("sha256:")


def test_a_whole_image_and_a_whole_index_pass(registry: LayoutRegistry) -> None:
    require_image(registry, "train", put_image(registry, "train", "v1").digest)
    require_image(registry, "train", put_index(registry, "train", "v2").digest)


def test_a_digest_that_the_registry_lacks_is_refused(registry: LayoutRegistry) -> None:
    put_image(registry, "train", "v1")
    absent = digest_of(b"never pushed")
    with pytest.raises(LaunchRefused, match=f"'train@{absent}' is not in image layout .*; mirror it"):
        require_image(registry, "train", absent)


def test_an_image_without_one_of_its_layers_is_refused(registry: LayoutRegistry, tmp_path: Path) -> None:
    image = put_image(registry, "train", "v1", layer=b"a layer")
    blob_file(tmp_path, digest_of(b"a layer")).unlink()
    with pytest.raises(
        LaunchRefused, match=rf"is not whole in .*: {digest_of(b'a layer')} is missing; mirror it again"
    ):
        require_image(registry, "train", image.digest)


def test_an_index_without_one_of_its_images_is_refused(registry: LayoutRegistry, tmp_path: Path) -> None:
    child = put_image(registry, "train", None, layer=b"layer of v1 for arm64", architecture="arm64")
    index = put_index(registry, "train", "v1")
    blob_file(tmp_path, child.digest).unlink()
    with pytest.raises(LaunchRefused, match=rf"is not whole in .*{child.digest}"):
        require_image(registry, "train", index.digest)


def test_a_tag_is_refused_because_it_may_move(registry: LayoutRegistry) -> None:
    put_image(registry, "train", "v1")
    with pytest.raises(LaunchRefused, match="'train:v1' is not given by digest"):
        require_image(registry, "train", "v1")


def test_a_registry_that_does_not_answer_is_not_taken_for_one_without_the_image() -> None:
    registry = HttpRegistry(name="cloud", url="http://127.0.0.1:1")
    with pytest.raises(Unreachable, match=r"registry cloud \(127\.0\.0\.1:1\) is unreachable: .*refused"):
        require_image(registry, "train", digest_of(b"image"))


def reference(tag: str) -> ImageReference:
    return ImageReference(repository="train", tag=tag)


@pytest.mark.parametrize("put", [put_image, put_index], ids=["an image", "an index"])
def test_an_image_that_is_not_what_its_tag_says_is_refused_with_what_it_is(
    registry: LayoutRegistry, put: Callable[..., Manifest]
) -> None:
    image = put(registry, "train", "torch2.0.1-cuda11.8", labels={"dev.spillway.cuda": "12.1"})
    require_environment(registry, reference("torch2.0.1-cuda12.1"), image.digest)
    with pytest.raises(LaunchRefused, match=r"not what its tag says: cuda is 12.1, the tag says 11.8; build it anew"):
        require_environment(registry, reference("torch2.0.1-cuda11.8"), image.digest)


def test_a_tag_that_promises_nothing_and_an_image_that_says_nothing_pass(registry: LayoutRegistry) -> None:
    image = put_image(registry, "train", "v1", labels={"dev.spillway.cuda": "12.1"})
    require_environment(registry, reference("v1"), image.digest)
    require_environment(registry, ImageReference(repository="train", digest=image.digest), image.digest)
    silent = put_image(registry, "train", "cuda11.8")
    require_environment(registry, reference("cuda11.8"), silent.digest)
