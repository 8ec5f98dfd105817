"""The compare decides from known content only."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spillway.model import ObjectInfo, SyncedObject
from spillway.sync.compare import COPY_OF, compare_content, copy_of

HOME = "s3://datasets@onprem"
OLD, NEW = datetime(2026, 1, 1, 11, tzinfo=UTC), datetime(2026, 1, 1, 12, tzinfo=UTC)
SYNCED = SyncedObject(size_bytes=100, source_etag="s1", destination_etag="d1")


def source(*, size_bytes: int = 100, etag: str = "s1", sha256: str | None = None) -> ObjectInfo:
    return ObjectInfo(key="x", size_bytes=size_bytes, etag=etag, sha256=sha256, modified_at=OLD)


def destination(
    *, size_bytes: int = 100, etag: str = "d1", sha256: str | None = None, mark: str | None = None
) -> ObjectInfo:
    metadata = {} if mark is None else {COPY_OF: mark}
    return ObjectInfo(key="x", size_bytes=size_bytes, etag=etag, sha256=sha256, metadata=metadata, modified_at=NEW)


CASES = {
    "both etags are those of the last sync": (source(), destination(), SYNCED, True),
    "the source has a new etag, equal size, an older date": (source(etag="s2"), destination(), SYNCED, False),
    "the destination was changed by somebody": (source(), destination(etag="d2"), SYNCED, False),
    "equal etags alone say nothing": (source(etag="same"), destination(etag="same"), None, None),
    "sizes differ": (source(size_bytes=99), destination(), SYNCED, False),
    "equal sha256": (source(sha256="aa"), destination(sha256="aa"), None, True),
    "equal sha256, both have changed": (
        source(etag="s2", sha256="aa"),
        destination(etag="d2", sha256="aa"),
        SYNCED,
        True,
    ),
    "equal sha256, only the source has changed": (
        source(etag="s2", sha256="aa"),
        destination(sha256="aa"),
        SYNCED,
        False,
    ),
    "a marked copy that somebody changed": (
        source(),
        destination(etag="d2", mark=copy_of(HOME, "s1")),
        SYNCED,
        False,
    ),
    "a marked copy of a version since the last sync": (
        source(etag="s2"),
        destination(etag="d2", mark=copy_of(HOME, "s2")),
        SYNCED,
        True,
    ),
    "other sha256, equal size": (source(etag="s2", sha256="aa"), destination(sha256="bb"), SYNCED, False),
    "sha256 known on one side only": (source(sha256="aa"), destination(), None, None),
    "a marked copy of this version": (source(), destination(mark=copy_of(HOME, "s1")), None, True),
    "a marked copy of an older version": (source(etag="s2"), destination(mark=copy_of(HOME, "s1")), None, None),
    "a marked copy from another store": (source(), destination(mark=copy_of("s3://other@x", "s1")), None, None),
    "a marked copy with another sha256": (
        source(sha256="aa"),
        destination(sha256="bb", mark=copy_of(HOME, "s1")),
        None,
        False,
    ),
}


@pytest.mark.parametrize(("there", "here", "synced", "equal"), CASES.values(), ids=CASES.keys())
def test_content_is_equal_only_where_that_is_known(
    there: ObjectInfo, here: ObjectInfo, synced: SyncedObject | None, equal: bool | None
) -> None:
    comparison = compare_content(there, here, synced, source_name=HOME)
    assert comparison.equal is equal
    assert comparison.reason


def test_the_mark_of_a_copy_is_plain_ascii_and_tells_versions_and_stores_apart() -> None:
    marks = {copy_of("s3://ä b@x", "e 1"), copy_of("s3://ä b@x", "e 2"), copy_of("s3://ä@x", "b e 1")}
    assert len(marks) == 3
    assert all(mark.isascii() and mark.count(" ") == 1 for mark in marks)
