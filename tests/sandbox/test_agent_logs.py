"""Container logs in every way that clients ask for them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spillway.sandbox.agent.logs import LogRequest, LogWriter, last_text, read_log


def _log(path: Path, *lines: str) -> list[datetime]:
    """Write lines a second apart; gives their times."""
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    times = [start + timedelta(seconds=number) for number in range(len(lines))]
    content = [f"{t:%Y-%m-%dT%H:%M:%S.000000000Z} stdout F {line}\n" for t, line in zip(times, lines, strict=True)]
    path.write_text("".join(content))
    return times


def _read(path: Path, request: LogRequest) -> str:
    async def read() -> bytes:
        return b"".join([chunk async for chunk in read_log(path, request, lambda: True)])

    return asyncio.run(read()).decode()


def test_a_log_is_given_in_every_way_that_clients_ask(tmp_path: Path) -> None:
    file = tmp_path / "log"
    times = _log(file, "a", "b b", "c")

    assert _read(file, LogRequest()) == "a\nb b\nc\n"
    assert _read(file, LogRequest(tail=1)) == "c\n"
    assert _read(file, LogRequest(tail=0)) == ""
    assert _read(file, LogRequest(since=times[1])) == "b b\nc\n"
    assert _read(file, LogRequest(limit_bytes=3)) == "a\nb"
    assert _read(file, LogRequest(tail=1, timestamps=True)) == "2026-01-01T12:00:02.000000000Z c\n"
    assert _read(file, LogRequest(follow=True)) == "a\nb b\nc\n"
    assert _read(tmp_path / "none", LogRequest(follow=True)) == ""
    assert last_text(file, lines=2, limit_bytes=4) == " b\nc\n"[-4:]


def test_a_followed_log_gives_what_comes_later_even_of_a_removed_pod_and_ends_with_the_container(
    tmp_path: Path,
) -> None:
    file = tmp_path / "log"
    over = asyncio.Event()

    async def follow() -> list[bytes]:
        source = asyncio.StreamReader()
        writer = LogWriter(file)
        copying = asyncio.create_task(writer.copy(source, "stdout"))
        source.feed_data(b"first\nsecond, in tw")
        chunks = []
        async for chunk in read_log(file, LogRequest(follow=True), over.is_set):
            chunks.append(chunk)
            if not over.is_set():
                source.feed_data(b"o parts\nno end of line")
                source.feed_eof()
                await copying
                file.unlink()
                over.set()
        writer.close()
        return chunks

    assert b"".join(asyncio.run(follow())) == b"first\nsecond, in two parts\nno end of line"


def test_a_line_longer_than_the_buffer_is_read_back_whole(tmp_path: Path) -> None:
    async def write() -> None:
        source = asyncio.StreamReader(limit=16)
        writer = LogWriter(tmp_path / "log")
        source.feed_data(b"x" * 50 + b"\nnext\n")
        source.feed_eof()
        await writer.copy(source, "stdout")
        writer.close()

    asyncio.run(write())

    assert _read(tmp_path / "log", LogRequest()) == "x" * 50 + "\nnext\n"
