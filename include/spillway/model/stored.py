"""What object stores hold: objects, and the committed checkpoints written as objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One object. ``etag`` means "unchanged since we read it" and nothing else; ``sha256`` (hex) is its content."""

    key: str
    size_bytes: int
    etag: str
    modified_at: datetime | None = None
    sha256: str | None = None
    content_type: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


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
