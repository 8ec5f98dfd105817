"""The object store that movement and checkpoints are written against."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from spillway.model import ObjectInfo

OWN_PREFIX = ".spillway/"
"""Keys that belong to Spillway itself and to no dataset."""


@dataclass(frozen=True, slots=True)
class OpenedObject:
    """One version of an object: its facts, and its bytes, to be iterated once."""

    info: ObjectInfo
    chunks: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload of one object that was begun and not ended: the store keeps its parts, which no listing shows.

    ``begun_at`` is by the store's clock.
    """

    key: str
    id: str
    begun_at: datetime


class ObjectStore(Protocol):
    """One bucket. Keys are exact: no key is a folder, none is cleaned up.

    Every method raises ``Unreachable``, ``AccessDenied``, ``ConfigError`` (a certificate that cannot be verified) or
    ``Missing`` (the bucket); a missing object is None from ``head`` and ``Missing`` from ``read``.
    """

    @property
    def name(self) -> str:
        """How messages call it: ``s3://checkpoints@cloud``."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object whose key begins with ``prefix``, in no promised order; IncompleteListing instead of a part."""

    def head(self, key: str) -> ObjectInfo | None:
        """The object's facts, its stored sha256 included where the store knows one."""

    def tags(self, key: str) -> Mapping[str, str]:
        """The object's tags, by name; raises Missing, and RequestRefused where the store keeps or tells none."""

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        """The bytes from ``start`` in chunks; with ``if_match`` (an etag) of that version, else PreconditionFailed."""

    def open(self, key: str) -> OpenedObject:
        """The present version as a whole, facts and bytes by one request; raises Missing."""

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

        A ``RangedBody`` may be read in any order, in parts at the same time; an upload of one that was cut off goes on.
        ``sha256`` (hex) is verified before the object becomes visible (DigestMismatch) and kept with it.
        ``if_absent`` and ``if_match`` make the write conditional (PreconditionFailed).
        """

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Delete the keys; gives the refused ones with their reason. A key that is already gone is not refused."""

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        """The uploads of keys that begin with ``prefix`` which were begun and not ended, those at work included."""

    def abort(self, upload: Upload) -> None:
        """Forget the upload and its parts; one that is gone is no error. Whoever is at it has to begin anew."""


def list_data(store: ObjectStore, prefix: str) -> Iterator[ObjectInfo]:
    """The objects of a dataset: what lies under its prefix, which may be empty, without Spillway's own records."""
    return (entry for entry in store.list(prefix) if not entry.key.startswith(OWN_PREFIX))


class ForwardingStore:
    """An ``ObjectStore``, the same as the one behind it; a subclass says what it does otherwise."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def name(self) -> str:
        return self._store.name

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._store.list(prefix)

    def head(self, key: str) -> ObjectInfo | None:
        return self._store.head(key)

    def tags(self, key: str) -> Mapping[str, str]:
        return self._store.tags(key)

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        return self._store.read(key, start=start, length=length, if_match=if_match)

    def open(self, key: str) -> OpenedObject:
        return self._store.open(key)

    def put(self, key: str, body: bytes | Iterable[bytes], **wanted: Any) -> ObjectInfo:
        return self._store.put(key, body, **wanted)

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        return self._store.delete(keys)

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        return self._store.uploads(prefix)

    def abort(self, upload: Upload) -> None:
        self._store.abort(upload)


def read_all(store: ObjectStore, key: str, *, if_match: str | None = None) -> bytes:
    """The whole object, for small ones."""
    return b"".join(store.read(key, if_match=if_match))
