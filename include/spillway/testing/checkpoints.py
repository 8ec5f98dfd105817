"""Committed steps with safe defaults, and a store whose writes a test watches and interrupts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import Unreachable
from spillway.model import CheckpointManifest, ObjectInfo
from spillway.stores.base import ObjectStore, OpenedObject, Upload, read_all
from spillway.testing.builders import NOW


def commit_step(checkpoints: CheckpointStore, step: int, **fields: Any) -> CheckpointManifest:
    """Commit a step. Defaults: attempt 1, one part whose bytes follow from the step, one loss."""
    defaults: dict[str, Any] = {
        "attempt": 1,
        "world_size": 1,
        "parts": {"weights.npy": f"weights of step {step}".encode()},
        "data_cursor": {"epoch": 0, "batch": step},
        "metrics": {"loss": [[step, 1 / step]]},
        "now": NOW,
    }
    return checkpoints.commit(step=step, **{**defaults, **fields})


def contents(store: ObjectStore) -> dict[str, bytes]:
    """Every object of the store by its key."""
    return {info.key: read_all(store, info.key) for info in store.list()}


def committed(checkpoints: CheckpointStore) -> list[tuple[int, int]]:
    """(step, attempt) of each committed step, oldest first."""
    head = checkpoints.head()
    return [] if head is None else [(entry.step, entry.attempt) for entry in head.committed]


class WatchedStore:
    """A real store that records what is written and deleted, and calls ``before`` and ``after`` around each of them."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self.changes: list[str] = []
        self.before: Callable[[str], None] = lambda key: None
        self.after: Callable[[str], None] = lambda key: None
        self.unreadable: Callable[[str], bool] = lambda key: False

    @property
    def name(self) -> str:
        return self._inner.name

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list(prefix)

    def head(self, key: str) -> ObjectInfo | None:
        return self._inner.head(key)

    def tags(self, key: str) -> Mapping[str, str]:
        return self._inner.tags(key)

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        if self.unreadable(key):
            raise Unreachable(self.name, "the connection was reset")
        yield from self._inner.read(key, start=start, length=length, if_match=if_match)

    def open(self, key: str) -> OpenedObject:
        if self.unreadable(key):
            raise Unreachable(self.name, "the connection was reset")
        return self._inner.open(key)

    def put(self, key: str, body: bytes | Iterable[bytes], **fields: Any) -> ObjectInfo:
        self.before(key)
        info = self._inner.put(key, body, **fields)
        self.writes.append(key)
        self.changes.append(f"put {key}")
        self.after(key)
        return info

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        keys = list(keys)
        for key in keys:
            self.before(key)
        refused = self._inner.delete(keys)
        self.changes += [f"delete {key}" for key in keys if key not in refused]
        return refused

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        return self._inner.uploads(prefix)

    def abort(self, upload: Upload) -> None:
        self._inner.abort(upload)
