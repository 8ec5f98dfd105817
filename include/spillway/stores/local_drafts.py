"""The files in which a folder's objects are made, and what killed writers left of them."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

LEFT_BEHIND_SECONDS = 3600.0
"""A draft that nobody has locked and nobody has written to for so long has no writer any more.

The lock alone would not do: not every mounted folder passes locks on to other machines.
"""


class Drafts:
    """The drafts and the lock in a folder of the store's own; safe to share between threads and processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._swept = False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else is in such a block meanwhile."""
        self._folder.mkdir(exist_ok=True)
        with (self._folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._swept:
                os.utime(lock.fileno())  # by the clock of the file system, as the drafts have it
                self._sweep(os.fstat(lock.fileno()).st_mtime - LEFT_BEHIND_SECONDS)
                self._swept = True
            yield

    def path(self) -> Path:
        """A name that no other draft has."""
        return self._folder / f"{uuid.uuid4().hex}.draft"

    def open(self) -> tuple[Path, BufferedWriter]:
        """A new draft, safe from every sweep until its file is closed."""
        draft = self.path()
        with self.locked():  # a sweep might find it before it has its own lock
            sink = draft.open("xb")
            fcntl.flock(sink, fcntl.LOCK_EX)
        return draft, sink

    def _sweep(self, before: float) -> None:
        for draft in self._folder.glob("*.draft"):
            # One that is locked, gone meanwhile, or not ours to touch is none of our business.
            with suppress(OSError), draft.open("r+b") as left:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(left.fileno()).st_mtime < before:
                    draft.unlink()
