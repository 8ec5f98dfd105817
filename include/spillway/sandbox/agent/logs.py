"""Container logs on disk: one line of ``TIME STREAM F TEXT`` per line of output, read back in every way clients ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRequest:
    """What part of a log to give; ``since`` is the first moment, ``tail`` a number of lines before anything follows."""

    follow: bool = False
    timestamps: bool = False
    since: datetime | None = None
    tail: int | None = None
    limit_bytes: int | None = None


def log_stamp(moment: datetime) -> bytes:
    """RFC 3339 with nanoseconds, all of one length, so that the texts order as the moments do."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


class LogWriter:
    """Appends lines, each with the moment it came."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)

    async def copy(self, source: asyncio.StreamReader, stream: str) -> None:
        """Write the source's lines until it ends; a line beyond the reader's limit is cut into several."""
        while True:
            try:
                line = await source.readuntil(b"\n")
            except asyncio.IncompleteReadError as problem:
                line = problem.partial
            except asyncio.LimitOverrunError as problem:
                line = await source.read(problem.consumed)
            if not line:
                return
            text = line.removesuffix(b"\n")
            self._file.write(b"%s %s F %s\n" % (log_stamp(datetime.now(UTC)), stream.encode(), text))

    def close(self) -> None:
        self._file.close()


async def read_log(path: Path, request: LogRequest, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Chunks of the log; with ``follow`` until the container is over."""
    left = request.limit_bytes
    tail = request.tail
    position = 0
    while True:
        over = is_over()  # before the last read, so that nothing written in between is missed
        lines, position = _read_lines(path, position)
        if tail is not None:
            lines, tail = lines[-tail:] if tail else [], None
        chunk = b"".join(text for line in lines if (text := _shown(line, request)) is not None)
        if left is not None:
            chunk = chunk[:left]
            left -= len(chunk)
        if chunk:
            yield chunk
        if not request.follow or left == 0 or (over and not lines):
            return
        if not over:
            await asyncio.sleep(_POLL_SECONDS)


def last_text(path: Path, *, lines: int, limit_bytes: int) -> str:
    """The end of the log without its times."""
    found, _ = _read_lines(path, 0)
    return b"".join(line.split(b" ", 3)[3] for line in found[-lines:])[-limit_bytes:].decode(errors="replace")


def since_seconds(seconds: int) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _read_lines(path: Path, position: int) -> tuple[list[bytes], int]:
    """Whole lines from the position on, and the position after them."""
    if not path.exists():
        return [], position
    with path.open("rb") as file:
        file.seek(position)
        content = file.read()
    whole = content.rfind(b"\n") + 1
    return content[:whole].splitlines(keepends=True), position + whole


def _shown(line: bytes, request: LogRequest) -> bytes | None:
    moment, _, _, text = line.split(b" ", 3)
    if request.since is not None and moment < log_stamp(request.since):
        return None
    return moment + b" " + text if request.timestamps else text
