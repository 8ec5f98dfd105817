"""Content-addressed parts of one run: stored once under their sha256, verified whenever they are read."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from spillway.checkpoints.layout import part_key
from spillway.errors import DigestMismatch, Missing, StoreFull
from spillway.model import CheckpointPart
from spillway.stores.base import ObjectStore

CHUNK_BYTES = 1 << 20


class PartStore:
    """The parts of one run.

    A part that is there already is not sent again, but it is believed only after this process has read or written it:
    a step that is computed again has the same bytes, and would otherwise commit onto the damaged part it replaces.
    """

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._store, self._run = store, run
        self._verified: set[str] = set()

    def add(self, name: str, body: bytes | Path) -> CheckpointPart:
        """Store the bytes unless they are there and whole; gives the part that a manifest lists."""
        size_bytes, sha256 = _measure(body)
        part = CheckpointPart(name=name, size_bytes=size_bytes, sha256=sha256)
        if self.problem(part) is not None:
            self._put(part, body if isinstance(body, bytes) else _chunks(body))
        return part

    def receive(self, part: CheckpointPart, source: PartStore) -> int:
        """Copy the part from another store, verified; gives the bytes that were sent.

        What the store recorded of a part's digest counts here: reading it back over a link to be sure would cost as
        much as sending it.
        """
        info = self._store.head(part_key(self._run, part.sha256))
        if info is not None and info.size_bytes == part.size_bytes and info.sha256 == part.sha256:
            return 0
        self._put(part, source.read(part))
        return part.size_bytes

    def problem(self, part: CheckpointPart) -> str | None:
        """Why the part cannot be used, or None where it is there and whole; reads it unless that was done before."""
        if part.sha256 in self._verified:
            return None
        info = self._store.head(part_key(self._run, part.sha256))
        if info is None:
            return f"part '{part.name}' is missing"
        if info.size_bytes != part.size_bytes:
            return f"part '{part.name}' has {info.size_bytes} bytes, expected {part.size_bytes}"
        try:
            for _ in self.read(part):
                pass
        except Missing:
            return f"part '{part.name}' is missing"
        except DigestMismatch as mismatch:
            return f"part '{part.name}' has sha256 {mismatch.seen}, expected {part.sha256}"
        return None

    def read(self, part: CheckpointPart) -> Iterator[bytes]:
        """The part's bytes in chunks; raises Missing, and DigestMismatch at the end where they are not the part's."""
        digest = hashlib.sha256()
        for chunk in self._store.read(part_key(self._run, part.sha256)):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != part.sha256:
            self._verified.discard(part.sha256)
            raise DigestMismatch(f"part '{part.name}'", expected=part.sha256, seen=digest.hexdigest())
        self._verified.add(part.sha256)

    def write_file(self, part: CheckpointPart, target: Path) -> None:
        """Write the verified bytes to ``target``; it appears whole or not at all.

        Raises:
            StoreFull: the disk has no room; the half-written file is removed.
        """
        half = target.with_name(target.name + ".half")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with half.open("wb") as sink:
                for chunk in self.read(part):
                    sink.write(chunk)
            half.replace(target)
        except BaseException as problem:
            half.unlink(missing_ok=True)
            if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
                folder = next(parent for parent in target.parents if parent.exists())
                free_bytes = shutil.disk_usage(folder).free
                needs = f"{target} needs {part.size_bytes} bytes, {free_bytes} are free"
                raise StoreFull(f"the disk of {folder}", needs) from problem
            raise

    def _put(self, part: CheckpointPart, body: bytes | Iterable[bytes]) -> None:
        key = part_key(self._run, part.sha256)
        self._store.put(key, body, size_bytes=part.size_bytes, sha256=part.sha256)
        self._verified.add(part.sha256)


def _measure(body: bytes | Path) -> tuple[int, str]:
    if isinstance(body, bytes):
        return len(body), hashlib.sha256(body).hexdigest()
    with body.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256")
        return source.tell(), digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk
