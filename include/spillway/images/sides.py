"""Both registries of a mirroring, asked about many tags at the same time."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from spillway.errors import Missing, SpillwayError
from spillway.images.patience import Patience
from spillway.registries.base import Descriptor, ImageRegistry, Manifest

PARALLEL_TAGS = 16

Seen = Descriptor | SpillwayError | None
"""What a registry says of a tag: what it points at, that it cannot be told, or that there is none."""


class Sides:
    """Both registries, asked at the same time."""

    def __init__(
        self, threads: ThreadPoolExecutor, source: ImageRegistry, destination: ImageRegistry, repository: str
    ) -> None:
        self._threads, self._source, self._destination = threads, source, destination
        self._repository = repository
        self._patience = {source.name: Patience(), destination.name: Patience()}
        self.manifests: dict[str, Manifest] = {}
        """What was read of the source, by digest: the manifests of tags that the destination does not list."""

    def tags(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """All tags of the source, and those of the destination."""
        here = self._threads.submit(self._list, self._source)
        there = self._threads.submit(self._list, self._destination)
        return here.result(), frozenset(there.result())

    def _list(self, registry: ImageRegistry) -> tuple[str, ...]:
        return self._patience[registry.name].run(lambda: registry.tags(self._repository))

    def look(self, tags: Collection[str], listed_there: Collection[str]) -> dict[str, tuple[Seen, Seen]]:
        """What each tag is at the source and at the destination, which is not asked for tags that it does not list."""
        asking = {tag: self._describe if tag in listed_there else self._read for tag in tags}
        here = [self._threads.submit(ask, self._source, tag) for tag, ask in asking.items()]
        there = {
            tag: self._threads.submit(self._describe, self._destination, tag) for tag in tags if tag in listed_there
        }
        return {
            tag: (seen.result(), there[tag].result() if tag in there else None)
            for tag, seen in zip(tags, here, strict=True)
        }

    def _describe(self, registry: ImageRegistry, tag: str) -> Seen:
        try:
            return self._patience[registry.name].run(lambda: registry.describe(self._repository, tag))
        except SpillwayError as problem:
            return problem

    def _read(self, registry: ImageRegistry, tag: str) -> Seen:
        """The same of a tag whose manifest will be needed."""
        try:
            manifest = self._patience[registry.name].run(lambda: registry.manifest(self._repository, tag))
        except Missing:
            return None
        except SpillwayError as problem:
            return problem
        self.manifests[manifest.digest] = manifest
        return Descriptor(digest=manifest.digest, size_bytes=len(manifest.body), media_type=manifest.media_type)
