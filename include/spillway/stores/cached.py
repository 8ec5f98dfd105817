"""A store of core data, read through an encrypted cache at the reader's own site."""

from __future__ import annotations

from collections.abc import Iterator

from spillway.stores.base import ForwardingStore, ObjectStore
from spillway.stores.encrypted_cache import EncryptedCache

BLOCK_BYTES = 8 << 20
"""Objects are cached in blocks of this size, so that memory does not grow with them and ranges cost no more."""


class CachedStore(ForwardingStore):
    """An ``ObjectStore``, the same as the one behind it, but that versions which were read before come from the cache.

    Only reads of a known version (``if_match``) are cached: bytes of another one can never be taken for them. What is
    found out about the store (``list``, ``head``) is always asked of it.
    """

    def __init__(self, store: ObjectStore, cache: EncryptedCache, *, block_bytes: int = BLOCK_BYTES) -> None:
        super().__init__(store)
        self._cache, self._block_bytes = cache, block_bytes

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        if if_match is None:
            return self._store.read(key, start=start, length=length)
        return self._read_blocks(key, if_match, start, None if length is None else start + length)

    def _read_blocks(self, key: str, etag: str, start: int, end: int | None) -> Iterator[bytes]:
        number = start // self._block_bytes
        while end is None or number * self._block_bytes < end:
            block, last = self._block(key, etag, number)
            first = number * self._block_bytes
            wanted = block[max(start - first, 0) : None if end is None else end - first]
            if wanted:
                yield wanted
            if last:
                return
            number += 1

    def _block(self, key: str, etag: str, number: int) -> tuple[bytes, bool]:
        """A block of that version, and whether it is its last one. The first byte of an entry says that too."""
        what = f"{etag}\n{self._block_bytes}\n{number}\n{key}"
        entry = self._cache.get(what)
        if entry is None:
            first = number * self._block_bytes
            # A byte more than the block tells whether there is another one.
            body = b"".join(self._store.read(key, start=first, length=self._block_bytes + 1, if_match=etag))
            entry = bytes([len(body) <= self._block_bytes]) + body[: self._block_bytes]
            self._cache.put(what, entry)
        return entry[1:], bool(entry[0])
