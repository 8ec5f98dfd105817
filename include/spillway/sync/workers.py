"""The threads that copy objects: more for small ones; of keys of which one is the other's folder one at a time."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Generic, Self, TypeVar

from spillway.stores import parts
from spillway.sync.plan import PlannedObject
from spillway.threads import leave, told_to_end

SMALL_THREADS, SMALL_MAX_BYTES = 48, parts.MIB
"""With a far site most of the time goes by in waiting, so many small objects are under way at once."""

MEDIUM_THREADS, LARGE_THREADS = 16, 2
"""Each holds an object in memory, or several parts of one that is too large for one request."""

T = TypeVar("T")


class Workers(Generic[T]):
    """Threads for objects of each size apart from the others; what ends comes back to the caller's thread.

    Each key is under way once at a time.
    """

    def __init__(self, copy: Callable[[PlannedObject], T]) -> None:
        self._copy = copy
        self._waiting: dict[int, SimpleQueue[PlannedObject | None]] = {}
        self._done: SimpleQueue[tuple[str, T | BaseException]] = SimpleQueue()
        self._threads: list[Thread] = []
        self._begun: Counter[int] = Counter()
        self._keys: set[str] = set()
        self._folders: Counter[str] = Counter()

    def __enter__(self) -> Self:
        return self

    @property
    def under_way(self) -> int:
        """Objects that have begun and were not given back."""
        return len(self._keys)

    def crosses(self, key: str) -> bool:
        """Whether the key is a folder of one that is under way, or lies in one that is.

        A server that keeps keys as folders may make `d` the folder of `d/x` in the very moment in which it stores the
        object `d`, and lose that although it acknowledged it (SeaweedFS does, one time in twenty).
        """
        return key in self._folders or not self._keys.isdisjoint(folders_of(key))

    def begin(self, planned: PlannedObject) -> None:
        """Copy it as soon as a thread is free; threads begin as they are needed."""
        most = _at_once(planned.size_bytes)
        queue = self._waiting.setdefault(most, SimpleQueue())
        queue.put(planned)
        self._keys.add(planned.key)
        self._folders.update(folders_of(planned.key))
        if self._begun[most] < most:
            self._begun[most] += 1
            thread = Thread(target=self._work, args=(queue,), name=f"sync-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    @property
    def any_ended(self) -> bool:
        return not self._done.empty()

    def next_ended(self) -> T:
        """The next one that ends, in whatever order; raises what its copy raised."""
        key, ended = self._done.get()
        self._keys.remove(key)
        for folder in folders_of(key):
            self._folders[folder] -= 1
            if not self._folders[folder]:
                del self._folders[folder]
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _work(self, queue: SimpleQueue[PlannedObject | None]) -> None:
        while (planned := queue.get()) is not None:
            try:
                self._done.put((planned.key, self._copy(planned)))
            except BaseException as problem:
                self._done.put((planned.key, problem))

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop what has not begun and wait for what has; for a moment only where the process is told to end."""
        for most, queue in self._waiting.items():
            while not queue.empty():
                with contextlib.suppress(Empty):
                    queue.get_nowait()
            for _ in range(self._begun[most]):
                queue.put(None)
        if told_to_end(kind):
            return leave(self._threads)
        for thread in self._threads:
            thread.join()
        return None


def _at_once(size_bytes: int) -> int:
    """How many objects of about that size are under way at once."""
    if size_bytes > parts.SINGLE_MAX_BYTES:
        return LARGE_THREADS
    return SMALL_THREADS if size_bytes <= SMALL_MAX_BYTES else MEDIUM_THREADS


def folders_of(key: str) -> Iterator[str]:
    """The keys that would be folders of this one, or the marks of such: `a`, `a/`, `a/b` and `a/b/` of `a/b/c`."""
    end = key.find("/")
    while end >= 0:
        yield key[:end]
        if end + 1 < len(key):
            yield key[: end + 1]
        end = key.find("/", end + 1)


def folders_among(keys: Iterable[str]) -> frozenset[str]:
    """Those of the keys that are a folder of another one; the keys come in order."""
    begun: list[str] = []
    found = set[str]()
    for key in keys:
        while begun and not key.startswith(begun[-1]):
            begun.pop()
        # Between `d` and `d/x` lie keys as `d-x`, which begin with `d` as well.
        found.update(before for before in begun if before.endswith("/") or key.startswith("/", len(before)))
        begun.append(key)
    return frozenset(found)
