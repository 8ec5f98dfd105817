"""The list of a dataset's verified copy as one object: gzip, each line a JSON array of rows, in the order of keys."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import IO, Any

from spillway.codec import from_json
from spillway.errors import StoreFull
from spillway.model import SyncedObject
from spillway.stores.base import ObjectStore, read_all

Entry = tuple[str, SyncedObject]
"""A key and what is known of it."""

_LINE_ROWS = 1000
_CHUNK_BYTES = 1024**2
_GZIP = 31
_LEVEL = 1
"""Digests are most of it and hardly compress; a higher level takes thrice the time for a few per cent."""


@contextmanager
def temporary_space() -> Iterator[None]:
    """For what is kept in the temporary folder meanwhile; raises StoreFull where that has no room, or is none."""
    try:
        yield
    except OSError as problem:
        raise StoreFull(f"the temporary folder {tempfile.tempdir or ''}".rstrip(), str(problem)) from problem


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    """A file that nobody else sees; raises StoreFull where there can be none."""
    with temporary_space():
        file = tempfile.TemporaryFile(prefix="spillway-lines-")  # noqa: SIM115
    try:
        yield file
    finally:
        close_temporary(file)


def close_temporary(file: IO[bytes]) -> None:
    """Close it, also with what a full disk has not taken."""
    with suppress(OSError):
        file.close()


def put_entries(store: ObjectStore, key: str, entries: Iterable[Entry]) -> None:
    """Store the list; equal entries have equal bytes."""
    put_lines(store, key, ([path, *synced] for path, synced in entries))


def read_entries(store: ObjectStore, key: str) -> Iterator[Entry]:
    """The entries of the object.

    Raises:
        Missing: there is no such object.
        ValueError: it is not a whole list of entries.
    """
    for row in read_lines(store, key):
        try:
            path, *synced = row
            yield path, SyncedObject(*synced)
        except TypeError as problem:
            raise ValueError(f"expected a key and its entry, got {row!r}") from problem


def read_copy(store: ObjectStore, record: str) -> Iterator[Entry]:
    """The entries of the copy that the sync record of this key tells of.

    Of the record the list's name is read and nothing else: images of trainers are older than the platform, and a later
    release may write into it what they do not know.

    Raises:
        Missing: there is no such record, or no list.
        ValueError: it is no record, or the list is not whole.
    """
    found = from_json(read_all(store, record))
    name = found.get("entries") if isinstance(found, dict) else None
    if not isinstance(name, str) or not name:
        raise ValueError("expected the record of a sync, which names the list of its copy in 'entries'")
    yield from read_entries(store, name)


def put_lines(store: ObjectStore, key: str, rows: Iterable[Sequence[Any]]) -> None:
    """Store rows of plain data, many to a line, compressed; no more of them than one line is held in memory.

    Raises:
        StoreFull: the store is full, or the temporary folder.
    """
    with _temporary_file() as file:
        for chunk in _compressed(rows):
            with temporary_space():
                file.write(chunk)
        with temporary_space():
            length = file.tell()
            file.seek(0)  # writes what is left, too
        store.put(key, iter(partial(file.read, _CHUNK_BYTES), b""), size_bytes=length, content_type="application/gzip")


def _compressed(rows: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    packer, waiting = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP), iter(rows)
    while block := list(islice(waiting, _LINE_ROWS)):
        line = json.dumps(block, separators=(",", ":"), ensure_ascii=False)
        if chunk := packer.compress(f"{line}\n".encode()):
            yield chunk
    yield packer.flush()


def read_lines(store: ObjectStore, key: str) -> Iterator[list[Any]]:
    """The rows that ``put_lines`` wrote.

    Raises:
        ValueError: it is something else, or cut off.
    """
    unpacker, rest = zlib.decompressobj(_GZIP), b""
    try:
        for chunk in store.read(key):
            *lines, rest = (rest + unpacker.decompress(chunk)).split(b"\n")
            for line in lines:
                yield from from_json(line)
    except zlib.error as problem:
        raise ValueError(str(problem)) from problem
    if rest or not unpacker.eof:
        raise ValueError("it is cut off")
