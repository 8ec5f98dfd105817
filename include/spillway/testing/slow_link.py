"""A slow network before a real server: every byte arrives half a round trip later, and no more than so many a second.

It runs as a process of its own, so that its work is not taken for that of whoever talks through it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

_CHUNK_BYTES = 65536
_QUEUED_CHUNKS = 256


@contextmanager
def slow_link(upstream: str, *, round_trip_seconds: float, bytes_per_second: float | None = None) -> Iterator[str]:
    """The address of a link to ``upstream`` (http://host:port) for the length of a ``with`` block."""
    words = [urlsplit(upstream).netloc, str(round_trip_seconds), str(bytes_per_second or 0)]
    with subprocess.Popen(
        [sys.executable, "-m", "spillway.testing.slow_link", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield f"{urlsplit(upstream).scheme}://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


class _Link:
    def __init__(self, upstream: str, round_trip_seconds: float, bytes_per_second: float) -> None:
        self._host, _, self._port = upstream.partition(":")
        self._delay, self._rate = round_trip_seconds / 2, bytes_per_second
        self._free_at = 0.0

    async def serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection takes a round trip before its first byte may leave.
        await asyncio.sleep(2 * self._delay)
        try:
            answers, requests = await asyncio.open_connection(self._host, int(self._port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._relay(reader, requests), self._relay(answers, writer))

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_CHUNKS)
        arriving = asyncio.create_task(self._arrive(under_way, writer))
        clock = asyncio.get_running_loop().time
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                await under_way.put((self._sent_at(clock(), len(chunk)) + self._delay, chunk))
        except OSError:
            pass  # whoever sent has gone
        await under_way.put((clock() + self._delay, b""))
        await arriving

    def _sent_at(self, now: float, size: int) -> float:
        """When the last of these bytes is on the line, which all connections share."""
        if not self._rate:
            return now
        self._free_at = max(self._free_at, now) + size / self._rate
        return self._free_at

    async def _arrive(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        clock = asyncio.get_running_loop().time
        gone = False
        while True:
            moment, chunk = await under_way.get()
            await asyncio.sleep(max(0.0, moment - clock()))
            if not chunk:
                break
            try:
                if not gone:
                    writer.write(chunk)
                    await writer.drain()
            except OSError:
                gone = True
        writer.close()


if __name__ == "__main__":
    asyncio.run(_Link(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])).serve())
