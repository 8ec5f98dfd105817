"""What object stores hold: objects, committed checkpoints as objects, and the record of a dataset's verified copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from spillway.model.datasets import KeyScope

_NONE: Mapping[str, str] = MappingProxyType({})


class ObjectInfo(NamedTuple):
    """One object. ``etag`` means "unchanged since we read it" and nothing else; ``sha256`` (hex) is its content.

    A tuple, for a listing has millions of them.
    """

    key: str
    size_bytes: int
    etag: str
    modified_at: datetime | None = None
    sha256: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] = _NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPart:
    """A named file of a checkpoint; its bytes live under their sha256 (hex)."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """A committed step of one attempt; ``data_cursor`` and ``metrics`` are the trainer's own plain JSON."""

    run: str
    step: int
    attempt: int
    world_size: int
    parts: tuple[CheckpointPart, ...]
    data_cursor: Mapping[str, Any]
    metrics: Mapping[str, Any]
    created_at: datetime

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


class SyncedObject(NamedTuple):
    """One object as the last verified sync left it; a tuple, for a dataset has millions of them."""

    size_bytes: int
    source_etag: str
    destination_etag: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRecord:
    """What the last verified sync of a dataset left at its destination; a second object lists it, object by object.

    ``source`` is the source store's name. While a sync changes the destination, ``whole`` is False. ``entries`` is the
    key of the list. ``versions`` is a sha256 (hex) of which version of each object is there: equal copies have equal
    ones. ``sample`` has some of the objects, by chance: bytes and etag at the destination by key. ``verified_at`` tells
    when both sides were last listed and compared. ``known`` is the key of another list, of what a sync that fell short
    has verified all the same: the next one need not ask for it.
    """

    dataset: str
    source: str
    scope: KeyScope
    whole: bool
    entries: str
    objects: int
    size_bytes: int
    versions: str
    verified_at: datetime
    sample: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    known: str | None = None
