"""A store whose bytes are read no faster than a limit lets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spillway.stores.base import ForwardingStore, ObjectStore, OpenedObject

Take = Callable[[int], None]
"""Returns when that many bytes may move."""


def limited_chunks(chunks: Iterator[bytes], take: Take) -> Iterator[bytes]:
    """The chunks, each when its bytes may move; a rate that changes holds from the next chunk on."""
    for chunk in chunks:
        take(len(chunk))
        yield chunk


class LimitedStore(ForwardingStore):
    """An ``ObjectStore``, the same as the one behind it but for the pace of its reads."""

    def __init__(self, store: ObjectStore, take: Take) -> None:
        super().__init__(store)
        self._take = take

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        return limited_chunks(self._store.read(key, start=start, length=length, if_match=if_match), self._take)

    def open(self, key: str) -> OpenedObject:
        opened = self._store.open(key)
        return OpenedObject(opened.info, limited_chunks(opened.chunks, self._take))
