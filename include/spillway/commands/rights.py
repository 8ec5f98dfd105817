"""What an identity may do in a bucket, found by doing it: to an object that is written for it, and deleted after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from spillway.errors import AccessDenied
from spillway.stores.base import ObjectStore

PROBE = b"written by spillway preflight; may be deleted"
LIST, READ, WRITE, DELETE, MISS = "list", "read", "overwrite", "delete", "miss"
"""``MISS``: to be told that an object is not there; S3 refuses that to who may not list it."""
HARM = (READ, WRITE, DELETE)


def rights(theirs: ObjectStore, mine: ObjectStore, key: str) -> frozenset[str]:
    """What may be done as ``theirs`` to the object of that key, which ``mine`` writes and deletes.

    Raises:
        SpillwayError: it cannot be written, or somebody does not answer.
    """
    tries: Mapping[str, Callable[[], bool]] = {
        LIST: lambda: any(entry.key == key for entry in theirs.list(key)),
        READ: lambda: bool(next(iter(theirs.read(key, length=1)), b"")),
        MISS: lambda: theirs.head(f"{key}-absent") is None,
        WRITE: lambda: bool(theirs.put(key, PROBE, size_bytes=len(PROBE))),
        DELETE: lambda: not theirs.delete([key]),
    }
    mine.put(key, PROBE, size_bytes=len(PROBE))
    try:
        return frozenset(right for right, attempt in tries.items() if _succeeds(attempt))
    finally:
        mine.delete([key])


def words(found: Collection[str], order: Sequence[str] = (LIST, *HARM)) -> str:
    """Those of ``order``, for a sentence."""
    return ", ".join(right for right in order if right in found)


def _succeeds(attempt: Callable[[], bool]) -> bool:
    try:
        return attempt()
    except AccessDenied:
        return False
