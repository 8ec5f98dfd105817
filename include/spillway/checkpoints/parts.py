"""Content-addressed parts of one run: stored once under their sha256, verified whenever they are read."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from spillway.checkpoints.layout import part_key
from spillway.errors import DigestMismatch, Missing, StoreFull
from spillway.errors.counts import counted
from spillway.model import CheckpointPart
from spillway.stores.base import ObjectStore
from spillway.stores.parts import FileBody, RangedBody
from spillway.threads import worker_threads

PARTS_AT_ONCE = 4
"""Parts that are measured, sent or read at the same time; a large one travels in several requests of its own."""

RANGE_BYTES = 16 << 20
RANGES_AHEAD = 3
"""Of each large part; with PARTS_AT_ONCE of them fewer than a client has connections."""

Body = bytes | Path | CheckpointPart
"""What a part is made of: bytes, a file that stays as it is, or what another process has sent already."""

_T = TypeVar("_T")
_R = TypeVar("_R")


class PartStore:
    """The parts of one run.

    A part that is there already is not sent again, but it is believed only after this process has read or written it:
    a step that is computed again has the same bytes, and would otherwise commit onto the damaged part it replaces.
    """

    def __init__(self, store: ObjectStore, run: str) -> None:
        self.store, self.run = store, run
        self._verified: set[str] = set()

    def add(self, parts: Sequence[CheckpointPart], bodies: Mapping[str, Body]) -> int:
        """Store those that are not there and whole, several at once; gives the bytes that were sent.

        Args:
            parts: of ``bodies``, as ``measure`` gives them.
        Raises:
            Missing: a part that another process sent is not there as it said.
        """

        def add_one(part: CheckpointPart) -> int:
            body = bodies[part.name]
            if isinstance(body, CheckpointPart):
                if part.sha256 not in self._verified and not self.is_recorded(part):
                    raise Missing(f"part '{part.name}'", part_key(self.run, part.sha256), self.store.name)
                return 0
            if self._is_there(part) and self.problem(part) is None:
                return 0
            self._put(part, FileBody(body, part.size_bytes))
            return part.size_bytes

        return sum(at_once(add_one, _once_each(parts)))

    def receive(
        self,
        parts: Sequence[CheckpointPart],
        source: PartStore,
        expect: Callable[[int], None] = lambda size_bytes: None,
    ) -> int:
        """Copy parts from another store, verified, several at once; gives the bytes that were sent.

        What the store recorded of a part's digest counts here: reading it back over a link to be sure would cost as
        much as sending it.

        Args:
            expect: told of the bytes that are to be sent, and less than none of those that are there already.
        """

        def receive_one(part: CheckpointPart) -> int:
            if self.is_recorded(part):
                expect(-part.size_bytes)
                return 0
            self._put(part, source.body(part))
            return part.size_bytes

        wanted = _once_each(parts)
        expect(sum(part.size_bytes for part in wanted))
        return sum(at_once(receive_one, wanted))

    def is_recorded(self, part: CheckpointPart) -> bool:
        """Whether the store says that it has these bytes; they are not read."""
        info = self.store.head(part_key(self.run, part.sha256))
        return info is not None and info.size_bytes == part.size_bytes and info.sha256 == part.sha256

    def _is_there(self, part: CheckpointPart) -> bool:
        info = self.store.head(part_key(self.run, part.sha256))
        return info is not None and info.size_bytes == part.size_bytes

    def problem(self, part: CheckpointPart) -> str | None:
        """Why the part cannot be used, or None where it is there and whole; reads it unless that was done before."""
        if part.sha256 in self._verified:
            return None
        info = self.store.head(part_key(self.run, part.sha256))
        if info is None:
            return f"part '{part.name}' is missing"
        if info.size_bytes != part.size_bytes:
            return f"part '{part.name}' has {counted(info.size_bytes, 'byte')}, expected {part.size_bytes}"
        try:
            for _ in self.read(part):
                pass
        except Missing:
            return f"part '{part.name}' is missing"
        except DigestMismatch as mismatch:
            return f"part '{part.name}' has sha256 {mismatch.seen}, expected {part.sha256}"
        return None

    def problems(self, parts: Iterable[CheckpointPart]) -> list[str]:
        """Why parts cannot be used, in their order; several are read at once."""
        return [problem for problem in at_once(self.problem, parts) if problem]

    def read(self, part: CheckpointPart) -> Iterator[bytes]:
        """The part's bytes in chunks; raises Missing, and DigestMismatch at the end where they are not the part's."""
        digest = hashlib.sha256()
        for chunk in self._chunks_of(part):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != part.sha256:
            self._verified.discard(part.sha256)
            raise DigestMismatch(f"part '{part.name}'", expected=part.sha256, seen=digest.hexdigest())
        self._verified.add(part.sha256)

    def body(self, part: CheckpointPart) -> Iterable[bytes]:
        """The part's bytes for a copy that can be taken up where it was cut off; who stores them checks the digest."""
        key = part_key(self.run, part.sha256)
        return RangedBody(part.size_bytes, lambda start, length: self.store.read(key, start=start, length=length))

    def _chunks_of(self, part: CheckpointPart) -> Iterator[bytes]:
        """The bytes in order; of a large part the next ranges are on their way already."""
        key = part_key(self.run, part.sha256)
        if part.size_bytes <= RANGE_BYTES:
            yield from self.store.read(key)
            return

        def read_range(start: int) -> bytes:
            return b"".join(self.store.read(key, start=start, length=RANGE_BYTES))

        starts = iter(range(0, part.size_bytes, RANGE_BYTES))
        with worker_threads(RANGES_AHEAD, "range") as pool:
            ahead = deque(pool.submit(read_range, start) for start in islice(starts, RANGES_AHEAD))
            while ahead:
                chunk = ahead.popleft().result()
                if (start := next(starts, None)) is not None:
                    ahead.append(pool.submit(read_range, start))
                yield chunk

    def write_files(self, parts: Sequence[CheckpointPart], folder: Path) -> None:
        """Make every part a file of the folder by its name, verified; those that are there already stay as they are.

        Raises:
            Missing, DigestMismatch: a part cannot be used.
            StoreFull: the disk has no room; the half-written file is removed.
        """
        drafts = folder / drafts_folder(parts)
        try:
            at_once(lambda part: self._write_file(part, folder / part.name, drafts), missing_files(parts, folder))
        finally:
            with suppress(OSError):
                drafts.rmdir()

    def _write_file(self, part: CheckpointPart, target: Path, drafts: Path) -> None:
        """Write the bytes among the drafts, then move them to ``target``; it appears whole or not at all."""
        half = drafts / hashlib.sha256(part.name.encode()).hexdigest()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            drafts.mkdir(exist_ok=True)
            with half.open("wb") as sink:
                for chunk in self.read(part):
                    sink.write(chunk)
            half.replace(target)
        except BaseException as problem:
            half.unlink(missing_ok=True)
            if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
                room = next(parent for parent in target.parents if parent.exists())
                free_bytes = shutil.disk_usage(room).free
                needs = f"{target} needs {counted(part.size_bytes, 'byte')}, {free_bytes} are free"
                raise StoreFull(f"the disk of {room}", needs) from problem
            raise

    def _put(self, part: CheckpointPart, body: bytes | Iterable[bytes]) -> None:
        key = part_key(self.run, part.sha256)
        self.store.put(key, body, size_bytes=part.size_bytes, sha256=part.sha256)
        self._verified.add(part.sha256)


def measure(bodies: Mapping[str, Body]) -> tuple[CheckpointPart, ...]:
    """The part that each body is, by its name."""
    return tuple(at_once(lambda name: _measured(name, bodies[name]), bodies))


def drafts_folder(parts: Iterable[CheckpointPart]) -> str:
    """The name of the folder for files that are not whole yet, beside the parts' own; none of the parts lies in it."""
    taken, name = {part.name.partition("/")[0] for part in parts}, ".spillway-half"
    while name in taken:
        name += "-"
    return name


def missing_files(parts: Sequence[CheckpointPart], folder: Path) -> tuple[CheckpointPart, ...]:
    """The parts that are not files of the folder with exactly these bytes; one of another size is not read."""

    def is_there(part: CheckpointPart) -> bool:
        file = folder / part.name
        return file.is_file() and file.stat().st_size == part.size_bytes and _measured(part.name, file) == part

    there = at_once(is_there, parts)
    return tuple(part for part, found in zip(parts, there, strict=True) if not found)


def at_once(work: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    """The results in the order of the items, by several threads; the first failure stops what has not begun."""
    with worker_threads(PARTS_AT_ONCE, "parts") as pool:
        return [future.result() for future in [pool.submit(work, item) for item in items]]


def _once_each(parts: Iterable[CheckpointPart]) -> list[CheckpointPart]:
    """Of parts with the same bytes one."""
    return list({part.sha256: part for part in parts}.values())


def _measured(name: str, body: Body) -> CheckpointPart:
    if isinstance(body, CheckpointPart):
        return replace(body, name=name)
    if isinstance(body, bytes):
        return CheckpointPart(name=name, size_bytes=len(body), sha256=hashlib.sha256(body).hexdigest())
    with body.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256")
        return CheckpointPart(name=name, size_bytes=source.tell(), sha256=digest.hexdigest())
