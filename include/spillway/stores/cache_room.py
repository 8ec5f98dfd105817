"""What an encrypted cache holds, who used it last, and room made in it: nothing of this needs the key."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway.errors import Missing
from spillway.model import ObjectInfo
from spillway.stores.base import ObjectStore, read_all

BLOCKS, USES = "blocks/", "uses/"
"""Below the prefix of a cache: its blocks by their names, and when each pod has used which of them."""
_KEYS = re.compile(f"[0-9a-f]{{16}}/({BLOCKS}|{USES})")
"""How every key of a cache begins."""
MANY = 16
"""So many notes of uses lie side by side; the next one takes the place of them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedBlock:
    """``used_at`` (seconds since 1970) is when it was written or, as far as that is known, read last."""

    name: str
    size_bytes: int
    used_at: float


def list_blocks(store: ObjectStore, prefix: str) -> list[CachedBlock]:
    """Every block of the cache, the one that was used least recently first; raises as the store does."""
    return _blocks(store, prefix, _uses(store, prefix, _notes(store, prefix)))


def _blocks(store: ObjectStore, prefix: str, used: Mapping[str, float]) -> list[CachedBlock]:
    found = []
    for entry in store.list(prefix + BLOCKS):
        name = entry.key.removeprefix(prefix + BLOCKS)
        written_at = entry.modified_at.timestamp() if entry.modified_at else 0.0
        found.append(CachedBlock(name=name, size_bytes=entry.size_bytes, used_at=max(written_at, used.get(name, 0.0))))
    return sorted(found, key=lambda block: (block.used_at, block.name))


def note_uses(store: ObjectStore, prefix: str, used: Mapping[str, float]) -> None:
    """Write down when blocks were used, in an object of its own, so that no two pods meet in one; raises as the store
    does. Where there are many and none can be deleted nothing is written.
    """
    notes = _notes(store, prefix)
    if len(notes) < MANY:
        _write_note(store, prefix, used)
    else:
        known = _uses(store, prefix, notes)
        _merge_notes(store, prefix, notes, _blocks(store, prefix, known | dict(used)))


def evict(store: ObjectStore, prefix: str, *, limit_bytes: float, room_bytes: float) -> int:
    """Delete the blocks that were used least recently where the cache is larger than the limit; gives the bytes that
    stay, those of the notes of uses included.

    Args:
        room_bytes: to which it is emptied then. Two who do this at once delete the same ones.
    Raises:
        as the store does.
    """
    notes = _notes(store, prefix)
    blocks = _blocks(store, prefix, _uses(store, prefix, notes))
    left = sum(block.size_bytes for block in blocks) + sum(note.size_bytes for note in notes)
    if left <= limit_bytes:
        return left
    going: list[CachedBlock] = []
    for block in blocks:
        if left <= room_bytes:
            break
        going.append(block)
        left -= block.size_bytes
    refused = store.delete([prefix + BLOCKS + block.name for block in going])
    if len(notes) > 1:
        left += _merge_notes(store, prefix, notes, blocks[len(going) :])
    return left + sum(block.size_bytes for block in going if prefix + BLOCKS + block.name in refused)


def list_kept(store: ObjectStore, prefix: str = "") -> tuple[list[ObjectInfo], list[str]]:
    """All that caches have written below the prefix, and the keys of what is no cache's; raises as the store does."""
    entries = list(store.list(prefix))
    strange = [entry.key for entry in entries if not _KEYS.match(entry.key)]
    return [entry for entry in entries if _KEYS.match(entry.key)], strange


def prefix_in(key: str) -> str:
    """The prefix of the cache that has written the key."""
    return key[: key.index("/") + 1]


def _notes(store: ObjectStore, prefix: str) -> list[ObjectInfo]:
    """The objects that say when blocks were used."""
    return list(store.list(prefix + USES))


def _write_note(store: ObjectStore, prefix: str, used: Mapping[str, float]) -> int:
    body = json.dumps(dict(used)).encode()
    store.put(f"{prefix}{USES}{uuid.uuid4()}", body, size_bytes=len(body))
    return len(body)


def _merge_notes(store: ObjectStore, prefix: str, notes: Sequence[ObjectInfo], blocks: Sequence[CachedBlock]) -> int:
    """One note of these blocks in the place of all; gives by how many bytes they are more now.

    It is written before the last of them goes: who looks meanwhile finds nearly all. Where the first of them cannot be
    deleted all stay as they are, or each merging would leave one more.
    """
    if store.delete([notes[0].key]):
        return 0
    written = _write_note(store, prefix, {block.name: block.used_at for block in blocks}) if blocks else 0
    refused = store.delete([note.key for note in notes[1:]])
    return written - sum(note.size_bytes for note in notes if note.key not in refused)


def _uses(store: ObjectStore, prefix: str, notes: Sequence[ObjectInfo]) -> dict[str, float]:
    """When each block was used last; a note that somebody else wrote says nothing."""
    used: dict[str, float] = {}
    for note in notes:
        try:
            told = json.loads(read_all(store, note.key))
            for name, at in told.items():
                used[name] = max(float(at), used.get(name, 0.0))
        except (Missing, ValueError, TypeError, AttributeError):
            continue
    return used
