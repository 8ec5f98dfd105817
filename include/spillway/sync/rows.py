"""Rows by key in bounded memory: however many there are, they come back in the order of their keys."""

from __future__ import annotations

import marshal
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import IO, Any

from spillway.model import ObjectInfo
from spillway.stores.entries import close_temporary, temporary_space
from spillway.sync.plan import Action, PlannedObject

RUN_ROWS = 100_000
"""So many rows are sorted in memory; a run of them, when full, goes to a file in the temporary folder."""

_BLOCK_ROWS = 1000
_BY_KEY = itemgetter(0)

Row = tuple[Any, ...]
"""The key, then plain data."""


def row_of(planned: PlannedObject) -> Row:
    return (planned.key, planned.action.value, planned.reason, _facts(planned.source), _facts(planned.destination))


def planned_object(row: Row) -> PlannedObject:
    key, action, reason, there, here = row
    return PlannedObject(key, Action(action), reason, _info(key, there), _info(key, here))


def _facts(info: ObjectInfo | None) -> tuple[int, str, str | None] | None:
    return None if info is None else (info.size_bytes, info.etag, info.sha256)


def _info(key: str, facts: tuple[int, str, str | None] | None) -> ObjectInfo | None:
    if facts is None:
        return None
    size_bytes, etag, sha256 = facts
    return ObjectInfo(key=key, size_bytes=size_bytes, etag=etag, sha256=sha256)


class Rows:
    """An external merge sort. Rows that come in order, as most stores list, are not compared again."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._file: _File | None = None
        self._runs: list[_Run] = []
        self._current: list[Row] = []
        waiting = iter(rows)
        while taken := list(islice(waiting, RUN_ROWS)):
            self._current = taken
            if len(taken) == RUN_ROWS:
                self._spill()

    def __len__(self) -> int:
        return len(self._runs) * RUN_ROWS + len(self._current)

    def add(self, row: Row) -> None:
        """One more; rows of equal keys stay in the order in which they came."""
        self._current.append(row)
        if len(self._current) >= RUN_ROWS:
            self._spill()

    def __iter__(self) -> Iterator[Row]:
        self._current.sort(key=_BY_KEY)
        bounds = [run.bounds for run in self._runs]
        if self._current:
            bounds.append((self._current[0][0], self._current[-1][0]))
        readers = [*(run.read() for run in self._runs), iter(self._current)]
        if all(before[1] <= after[0] for before, after in pairwise(bounds)):
            return chain.from_iterable(readers)
        return merge(*readers, key=_BY_KEY)

    def _spill(self) -> None:
        with temporary_space():
            if self._file is None:
                self._file = _File()
            self._runs.append(_Run(self._file, self._current))
            self._file.flush()
        self._current = []


class _File:
    """A file that nobody else sees, closed when the last of its readers is gone."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="spillway-rows-")  # noqa: SIM115
        weakref.finalize(self, close_temporary, self._file)
        self.flush = self._file.flush

    def append(self, rows: list[Row]) -> tuple[int, int]:
        """Where the block lies: its position and its bytes."""
        position = self._file.seek(0, 2)
        return position, self._file.write(marshal.dumps(rows))

    def block(self, position: int, size_bytes: int) -> list[Row]:
        self._file.seek(position)
        block: list[Row] = marshal.loads(self._file.read(size_bytes))
        return block


class _Run:
    """Sorted rows in a file, in blocks, so that many runs can be read side by side."""

    def __init__(self, file: _File, rows: list[Row]) -> None:
        rows.sort(key=_BY_KEY)
        self.bounds: tuple[str, str] = (rows[0][0], rows[-1][0])
        self._file = file
        self._blocks = [file.append(rows[begin : begin + _BLOCK_ROWS]) for begin in range(0, len(rows), _BLOCK_ROWS)]

    def read(self) -> Iterator[Row]:
        for block in self._blocks:
            yield from self._file.block(*block)
