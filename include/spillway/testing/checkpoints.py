"""Committed steps with safe defaults, and a store whose writes a test watches and interrupts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from spillway.checkpoints.store import CheckpointStore
from spillway.errors import Unreachable
from spillway.model import CheckpointManifest, ObjectInfo
from spillway.stores.base import ObjectStore
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


class WatchedStore:
    """A real store that records what is written, and calls ``before`` and ``after`` around each write."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner
        self.writes: list[str] = []
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

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        if self.unreadable(key):
            raise Unreachable(self.name, "the connection was reset")
        yield from self._inner.read(key, start=start, length=length, if_match=if_match)

    def put(self, key: str, body: bytes | Iterable[bytes], **fields: Any) -> ObjectInfo:
        self.before(key)
        info = self._inner.put(key, body, **fields)
        self.writes.append(key)
        self.after(key)
        return info

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        return self._inner.delete(keys)
