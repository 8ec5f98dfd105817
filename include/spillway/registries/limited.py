"""A registry whose blobs are read no faster than a limit lets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spillway.registries.base import Descriptor, ImageRegistry, Manifest


class LimitedRegistry:
    """An ``ImageRegistry``, the same as the one behind it but for the pace of its blobs.

    ``take`` returns when that many bytes may move.
    """

    def __init__(self, registry: ImageRegistry, take: Callable[[int], None]) -> None:
        self._registry, self._take = registry, take

    @property
    def name(self) -> str:
        return self._registry.name

    def tags(self, repository: str) -> tuple[str, ...]:
        return self._registry.tags(repository)

    def resolve(self, repository: str, reference: str) -> str | None:
        return self._registry.resolve(repository, reference)

    def describe(self, repository: str, reference: str) -> Descriptor | None:
        return self._registry.describe(repository, reference)

    def manifest(self, repository: str, reference: str) -> Manifest:
        return self._registry.manifest(repository, reference)

    def referrers(self, repository: str, digest: str) -> Manifest | None:
        return self._registry.referrers(repository, digest)

    def has_blob(self, repository: str, digest: str) -> bool:
        return self._registry.has_blob(repository, digest)

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        for chunk in self._registry.read_blob(repository, digest):
            self._take(len(chunk))
            yield chunk

    def put_blob(
        self, repository: str, digest: str, chunks: Iterator[bytes], *, size_bytes: int, mount_from: str | None = None
    ) -> bool:
        return self._registry.put_blob(repository, digest, chunks, size_bytes=size_bytes, mount_from=mount_from)

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        self._registry.put_manifest(repository, reference, manifest)

    def delete(self, repository: str, reference: str) -> None:
        self._registry.delete(repository, reference)
