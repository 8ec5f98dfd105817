"""How a body is cut, counted and held against its digest on the way into a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from spillway.errors import DigestMismatch, RequestRefused
from spillway.errors.counts import counted

MIB = 1024**2
PART_WISH_BYTES = 16 * MIB
SINGLE_MAX_BYTES = 16 * MIB
"""Objects up to this size travel in one request."""
STREAMED_MAX_BYTES = 128 * MIB
"""So do files up to this size whose sha256 is known: a server has a fifth less to do than with parts of them."""
PARTS_IN_FLIGHT = 4
"""Parts of one object that are sent at once."""
PART_MAX_BYTES = 5 * 1024 * MIB
PARTS_MAX = 10_000


def part_bytes(what: str, size_bytes: int) -> int:
    """The size of every part but the last: as wished, or more where the limit of 10,000 parts asks for it.

    Raises:
        RequestRefused: no allowed part size can hold the object (beyond about 48.8 TiB); ``what`` names it.
    """
    needed = -(-size_bytes // PARTS_MAX)
    size = max(PART_WISH_BYTES, -(-needed // MIB) * MIB)
    if size > PART_MAX_BYTES:
        raise RequestRefused(
            what, f"{size_bytes} bytes", f"an object holds at most {PARTS_MAX} parts of 5 GiB; split it at its source"
        )
    return size


def split_in_parts(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in parts of exactly ``size``, the last one shorter."""
    pending = bytearray()
    for chunk in chunks:
        if not pending and len(chunk) == size:
            yield chunk
            continue
        pending += chunk
        while len(pending) >= size:
            yield bytes(pending[:size])
            del pending[:size]
    if pending:
        yield bytes(pending)


class RangedBody:
    """Bytes that can be read in any order and again: in parts at the same time, and anew after a failure."""

    def __init__(self, size_bytes: int, read: Callable[[int, int], Iterable[bytes]]) -> None:
        """``read`` gives the chunks from an offset over a length, of one and the same version every time."""
        self.size_bytes, self._read = size_bytes, read

    def __iter__(self) -> Iterator[bytes]:
        """Everything in order, a part at a time."""
        for start in range(0, self.size_bytes, PART_WISH_BYTES):
            yield self.part(start, min(PART_WISH_BYTES, self.size_bytes - start))

    def part(self, start: int, length: int) -> bytes:
        """The bytes of one part."""
        return b"".join(self._read(start, length))


class FileBody(RangedBody):
    """A file that stays as it is, or bytes: what can be sent without a pause, since nothing of it is waited for."""

    def __init__(self, content: Path | bytes, size_bytes: int, *, sha256: str | None = None) -> None:
        """With ``sha256`` (hex) whoever iterates gets the last piece only of the very bytes."""
        super().__init__(size_bytes, self._chunks)
        self._content, self._sha256 = content, sha256

    def held_against(self, sha256: str | None) -> FileBody:
        """The same, with or without that look at its bytes."""
        return FileBody(self._content, self.size_bytes, sha256=sha256)

    def __iter__(self) -> Iterator[bytes]:
        """Everything in order, a little at a time.

        Raises:
            DigestMismatch: the file has become shorter, has other bytes, or cannot be read any more.
        """
        seen, digest, last = 0, hashlib.sha256(), b""
        for chunk in self._chunks(0, self.size_bytes):
            seen += len(chunk)
            if self._sha256 is not None:
                digest.update(chunk)
            if last:
                yield last
            last = chunk
        if seen < self.size_bytes:
            raise self._changed(f"that of {counted(seen, 'byte')}")
        if self._sha256 not in (None, digest.hexdigest()):
            raise self._changed(digest.hexdigest())
        yield last

    def _changed(self, seen: str) -> DigestMismatch:
        name = "bytes" if isinstance(self._content, bytes) else str(self._content)
        return DigestMismatch(name, expected=self._sha256 or f"that of {counted(self.size_bytes, 'byte')}", seen=seen)

    def _chunks(self, start: int, length: int) -> Iterator[bytes]:
        if isinstance(self._content, bytes):
            yield self._content[start : start + length]
            return
        try:
            with self._content.open("rb") as source:
                source.seek(start)
                while length > 0 and (chunk := source.read(min(length, MIB))):
                    length -= len(chunk)
                    yield chunk
        except OSError as problem:
            raise self._changed(f"none: {problem}") from problem


class PromisedBody:
    """The chunks of a body, watched against what was promised of it: its size and, where known, its sha256 (hex)."""

    def __init__(self, what: str, chunks: Iterable[bytes] | RangedBody, *, size_bytes: int, sha256: str | None) -> None:
        self.what, self.chunks, self.size_bytes, self.sha256 = what, chunks, size_bytes, sha256
        self._seen_bytes, self._seen = 0, hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        """Each chunk once; ends at the first one that goes beyond the promised size."""
        for chunk in self.chunks:
            self.see(chunk)
            yield chunk
            if self._seen_bytes > self.size_bytes:
                return

    def see(self, chunk: bytes) -> None:
        """Count the next chunk in, for whoever reads them in another way."""
        self._seen_bytes += len(chunk)
        self._seen.update(chunk)

    def verify(self) -> str:
        """The sha256 (hex) of the chunks that were seen; DigestMismatch where a promise was not kept."""
        seen = self._seen.hexdigest()
        if self._seen_bytes != self.size_bytes or self.sha256 not in (None, seen):
            raise DigestMismatch(
                self.what,
                expected=f"{self.sha256 or 'any'} over {counted(self.size_bytes, 'byte')}",
                seen=f"{seen} over {counted(self._seen_bytes, 'byte')}",
            )
        return seen
