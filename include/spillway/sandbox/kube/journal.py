"""The API server's memory on disk: a file of JSON lines that survives a kill of the process at any instant."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Journal:
    """Append-only lines. A line is with the operating system when ``append`` returns; a power cut may lose the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._drop_torn_end()
        self._file = path.open("ab", buffering=0)
        path.chmod(0o600)  # secrets are in it

    @property
    def lines(self) -> int:
        """How many lines there are: the caller compacts when they are many more than its objects."""
        return self._lines

    def read(self) -> Iterator[Line]:
        """Every line, oldest first."""
        with self._path.open("rb") as file:
            for line in file:
                self._lines += 1
                yield json.loads(line)

    def append(self, line: Line) -> None:
        """Add the line; raises OSError where it can't be written as a whole, and then nothing of it stays."""
        encoded = _encode(line)
        before = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(encoded) != len(encoded):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        except OSError:
            os.truncate(self._path, before)
            raise
        self._lines += 1

    def replace(self, lines: Iterable[Line]) -> None:
        """Put the lines in the place of all that was there; a reader sees the old file or the whole new one."""
        new = self._path.with_suffix(".new")
        self._lines = 0
        with new.open("wb") as file:
            for line in lines:
                file.write(_encode(line))
                self._lines += 1
            file.flush()
            os.fsync(file.fileno())
        new.chmod(0o600)
        new.replace(self._path)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        self._file.close()

    def _drop_torn_end(self) -> None:
        """A process killed inside a write leaves a last line without its end; it was never acknowledged."""
        if self._path.exists():
            content = self._path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self._path, whole)


def _encode(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"
