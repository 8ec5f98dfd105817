"""Whether two objects have the same content, decided from what is known and never from what merely looks alike.

Dates are not looked at, and an etag is not a digest: it only says that one store's object is the version it was.

    what is known                                                                  the content is
    sizes differ                                                                   different
    both etags are those of the last verified sync                                 equal
    sha256 known on both sides                                                     equal or different, as they say
    the destination says that it is a verified copy of this version of the source  equal
    anything else                                                                  unknown, so it is copied
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from spillway.model import ObjectInfo

COPY_OF = "spillway-copy-of"
"""The metadata field in which a copy names the version that it was verified to be a copy of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedObject:
    """One object as the last verified sync left it."""

    size_bytes: int
    source_etag: str
    destination_etag: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncManifest:
    """What the last verified sync of a dataset left at its destination, by key; ``source`` is the store's name."""

    dataset: str
    source: str
    prefix: str
    objects: Mapping[str, SyncedObject]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``equal`` is None where nothing that is known decides it."""

    equal: bool | None
    reason: str


def copy_of(source: str, etag: str) -> str:
    """The mark of a copy: the name of the source store and the version."""
    return f"{quote(source, safe=':/@')} {quote(etag, safe='-')}"


def compare_content(
    source: ObjectInfo, destination: ObjectInfo, synced: SyncedObject | None, *, source_name: str
) -> Comparison:
    """Whether the contents are equal, by the table of this module."""
    if source.size_bytes != destination.size_bytes:
        return Comparison(False, f"{source.size_bytes} bytes at the source, {destination.size_bytes} here")
    if synced is not None and (synced.source_etag, synced.destination_etag) == (source.etag, destination.etag):
        return Comparison(True, "unchanged on both sides since the last verified sync")
    if source.sha256 is not None and destination.sha256 is not None:
        if source.sha256 == destination.sha256:
            return Comparison(True, "equal sha256")
        return Comparison(False, "sha256 differs")
    if destination.metadata.get(COPY_OF) == copy_of(source_name, source.etag):
        return Comparison(True, "a verified copy of this version")
    return Comparison(None, "not known to be equal")
