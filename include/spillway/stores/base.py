"""The object store that movement and checkpoints are written against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from spillway.model import ObjectInfo


class ObjectStore(Protocol):
    """One bucket. Keys are exact: no key is a folder, none is cleaned up.

    Every method raises ``Unreachable``, ``AccessDenied`` or ``Missing`` (the bucket); a missing object is None from
    ``head`` and ``Missing`` from ``read``.
    """

    @property
    def name(self) -> str:
        """How messages call it: ``s3://checkpoints@cloud``."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key begins with ``prefix``, in no promised order; IncompleteListing instead of a part."""

    def head(self, key: str) -> ObjectInfo | None:
        """The object's facts, its stored sha256 included where the store knows one."""

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        """The bytes from ``start`` in chunks; with ``if_match`` (an etag) of that version, else PreconditionFailed."""

    def put(
        self,
        key: str,
        body: bytes | Iterable[bytes],
        *,
        size_bytes: int,
        sha256: str | None = None,
        if_absent: bool = False,
        if_match: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Store the bytes, atomically: a reader sees the old object or the whole new one.

        ``sha256`` (hex) is verified before the object becomes visible (DigestMismatch) and kept with it.
        ``if_absent`` and ``if_match`` make the write conditional (PreconditionFailed).
        """

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete the keys; gives the refused ones with their reason. A key that is already gone is not refused."""


def read_all(store: ObjectStore, key: str, *, if_match: str | None = None) -> bytes:
    """The whole object, for small ones."""
    return b"".join(store.read(key, if_match=if_match))
