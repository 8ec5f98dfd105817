"""Container logs on disk, as container runtimes write them, and read back in every way that clients ask.

Each line is ``TIME STREAM TAG TEXT``; the tag is F for a full line of output and P for a part without its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger(__name__)

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
            tag, text = (b"F", line[:-1]) if line.endswith(b"\n") else (b"P", line)
            try:
                self._file.write(b"%s %s %s %s\n" % (log_stamp(datetime.now(UTC)), stream.encode(), tag, text))
            except OSError as problem:  # a full disk; the program must not be held up by its log
                log.warning("a line of the log is lost: %s", problem)

    def close(self) -> None:
        self._file.close()


async def read_log(path: Path, request: LogRequest, is_over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """Chunks of the log; with ``follow`` until the container is over, even if the file is removed meanwhile."""
    left = request.limit_bytes
    tail = request.tail
    with ExitStack() as opened:
        file: BinaryIO | None = None
        while True:
            over = is_over()  # before the last read, so that nothing written in between is missed
            if file is None and (found := _open(path)):
                file = opened.enter_context(found)
            lines = _whole_lines(file) if file else []
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
    """The end of the log without its times; empty where there is no log."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        found = _whole_lines(file)
    texts = [_shown(line, LogRequest()) or b"" for line in found[-lines:]]
    return b"".join(texts)[-limit_bytes:].decode(errors="replace")


def since_seconds(seconds: int) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _open(path: Path) -> BinaryIO | None:
    return path.open("rb") if path.exists() else None


def _whole_lines(file: BinaryIO) -> list[bytes]:
    """The lines from where the file stands, and leave it where the first unfinished one begins."""
    start = file.tell()
    content = file.read()
    whole = content.rfind(b"\n") + 1
    file.seek(start + whole)
    return content[:whole].splitlines(keepends=True)


def _shown(line: bytes, request: LogRequest) -> bytes | None:
    moment, _, tag, text = line.split(b" ", 3)
    if request.since is not None and moment < log_stamp(request.since):
        return None
    if tag == b"P":
        text = text.removesuffix(b"\n")
    return moment + b" " + text if request.timestamps else text
