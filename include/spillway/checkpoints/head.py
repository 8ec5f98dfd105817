"""The HEAD object of a run: read it, and move it by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable

from spillway.checkpoints.layout import Head, decode_head, encode_head, head_key
from spillway.errors import Missing, PreconditionFailed
from spillway.stores.base import ObjectStore, read_all

_RACES = 50
"""Lost races in a row before giving up; each one means that somebody else moved HEAD."""


def read_head(store: ObjectStore, run: str) -> Head | None:
    """The run's HEAD, or None where nobody has fenced the run yet.

    Raises:
        CorruptCheckpoint, ForeignCheckpoint: it cannot be believed; nothing is guessed from it.
    """
    return _read(store, run)[0]


def move_head(store: ObjectStore, run: str, change: Callable[[Head | None], Head]) -> Head:
    """HEAD after ``change``, which is called with the HEAD as it is, again after each lost race.

    A ``change`` that finds its work done gives its argument back, and nothing is written. So an answer that got lost
    on the way back does no harm: the next round sees the new HEAD.
    """
    key = head_key(run)
    for _ in range(_RACES):
        seen, etag = _read(store, run)
        wanted = change(seen)
        if wanted == seen:
            return wanted
        body = encode_head(wanted)
        try:
            store.put(
                key,
                body,
                size_bytes=len(body),
                if_absent=etag is None,
                if_match=etag,
                content_type="application/json",
            )
        except PreconditionFailed:
            continue
        return wanted
    raise PreconditionFailed(store.name, key, f"unchanged while it is written, {_RACES} times in a row")


def _read(store: ObjectStore, run: str) -> tuple[Head | None, str | None]:
    key = head_key(run)
    for _ in range(_RACES):
        info = store.head(key)
        if info is None:
            return None, None
        try:
            return decode_head(run, read_all(store, key, if_match=info.etag)), info.etag
        except (PreconditionFailed, Missing):
            continue
    raise PreconditionFailed(store.name, key, f"unchanged while it is read, {_RACES} times in a row")
