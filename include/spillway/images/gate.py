"""The gate before a launch: no pod starts from an image that is not there, or is not what its tag says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spillway.codec import from_json
from spillway.errors import LaunchRefused, Missing
from spillway.images.environment import Environment
from spillway.images.mirror import blobs_of, image_tree
from spillway.images.reference import ImageReference
from spillway.images.transfer import PARALLEL_BLOBS
from spillway.registries.base import ImageRegistry
from spillway.registries.content import INDEX_MEDIA_TYPES, blobs
from spillway.registries.digest import is_digest, label
from spillway.threads import worker_threads

LARGEST_CONFIG_BYTES = 4 * 2**20


def require_image(registry: ImageRegistry, repository: str, digest: str) -> None:
    """Return when a pod at the registry's site can be started from the digest: all of it is there.

    Raises:
        LaunchRefused: the registry does not hold the manifest, one of its children or one of its blobs.
    """
    name = label(repository, digest)
    if not is_digest(digest):
        raise LaunchRefused(f"image '{name}' is not given by digest; resolve its tag before the launch")
    if registry.resolve(repository, digest) is None:
        raise LaunchRefused(f"image '{name}' is not in {registry.name}; mirror it to that registry, then launch")
    try:
        needed = blobs_of(image_tree(registry, repository, digest))
        with worker_threads(PARALLEL_BLOBS, "blob") as threads:
            stored = threads.map(lambda blob: registry.has_blob(repository, blob.digest), needed)
            absent = [blob.digest for blob, there in zip(needed, stored, strict=True) if not there]
    except Missing as problem:
        absent = [problem.name]
    if absent:
        raise LaunchRefused(
            f"image '{name}' is not whole in {registry.name}: {', '.join(absent)} is missing; mirror it again"
        )


def require_environment(registry: ImageRegistry, reference: ImageReference, digest: str) -> None:
    """Return when nothing that the image says of itself contradicts its tag; a tag outside the convention says nothing.

    Raises:
        LaunchRefused: the tag promises another CUDA, framework, library or operating system than the image holds.
    """
    promised = Environment.of_tag(reference.tag)
    if not promised.versions:
        return
    for config in _configs(registry, reference.repository, digest):
        wrong = promised.contradictions(Environment.of_config(config))
        if wrong:
            raise LaunchRefused(
                f"image '{reference}' ({digest}) is not what its tag says: {'; '.join(wrong)}; "
                "build it anew under that tag, or name one that is true"
            )


def _configs(registry: ImageRegistry, repository: str, digest: str) -> Iterator[Mapping[str, Any]]:
    """The configurations of the images that the digest stands for; what is none, as an attestation's, says nothing."""
    for manifest in image_tree(registry, repository, digest):
        if manifest.media_type in INDEX_MEDIA_TYPES:
            continue
        config = blobs(manifest)[0]
        if config.size_bytes > LARGEST_CONFIG_BYTES:
            continue
        try:
            document = from_json(b"".join(registry.read_blob(repository, config.digest)))
        except ValueError:
            continue
        if isinstance(document, Mapping):
            yield document
