"""Whether two objects have the same content, decided from what is known and never from what merely looks alike.

Dates are not looked at, and an etag is not a digest: it only says that one store's object is the version it was.
A digest or a mark is a note of whoever wrote the object, and tools that edit it in place keep the notes of before: it
is not believed of an object that alone has changed since the last verified sync.

    what is known                                                                  the content is
    sizes differ                                                                   different
    both etags are those of the last verified sync                                 equal
    sha256 known on both sides and other                                           different
    only one of the etags is that of the last verified sync                        taken for different
    sha256 known on both sides and the same                                        equal
    the destination says that it is a verified copy of this version of the source  equal
    anything else                                                                  unknown, so it is copied
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from spillway.errors.counts import counted
from spillway.model import ObjectInfo, SyncedObject

COPY_OF = "spillway-copy-of"
"""The metadata field in which a copy names the version that it was verified to be a copy of."""

SETTLED = "unchanged on both sides since the last verified sync"
"""The reason of the second line of the table, which most objects of most syncs meet."""


class Comparison(NamedTuple):
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
        return Comparison(False, f"{counted(source.size_bytes, 'byte')} at the source, {destination.size_bytes} here")
    if synced is not None and (synced.source_etag, synced.destination_etag) == (source.etag, destination.etag):
        return Comparison(True, SETTLED)
    known = source.sha256 is not None and destination.sha256 is not None
    if known and source.sha256 != destination.sha256:
        return Comparison(False, "sha256 differs")
    if synced is not None and (synced.source_etag == source.etag) != (synced.destination_etag == destination.etag):
        return Comparison(False, "changed on one side only since the last verified sync")
    if known:
        return Comparison(True, "equal sha256")
    if destination.metadata.get(COPY_OF) == copy_of(source_name, source.etag):
        return Comparison(True, "a verified copy of this version")
    return Comparison(None, "not known to be equal")
