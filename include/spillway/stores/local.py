"""Objects as plain files under a folder: a mounted share, or a disk at the site itself."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any, NoReturn

from spillway.errors import (
    AccessDenied,
    KeyRefused,
    Missing,
    PreconditionFailed,
    RequestRefused,
    StoreFull,
    Unreachable,
)
from spillway.model import ObjectInfo
from spillway.stores.base import OpenedObject, Upload
from spillway.stores.local_drafts import Drafts
from spillway.stores.local_keys import OWN_FOLDER, key_problem
from spillway.stores.parts import PromisedBody

_CHUNK_BYTES = 1024**2


class LocalStore:
    """An ``ObjectStore``; safe to share between threads and processes of machines that share ``flock``.

    A file is one object, so a key can't be a folder of other keys, and keys that a file system would change are
    refused by name. The etag is the sha256 of the content: listing reads every file, and an equal content written
    again has an equal etag.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._own = root / OWN_FOLDER
        self._drafts = Drafts(self._own)

    @property
    def name(self) -> str:
        return f"file://{self._root}"

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self._check_root()
        folder = prefix.rpartition("/")[0]
        if folder and key_problem(folder):
            return
        with self._typed_errors():
            for key in self._keys(self._root / folder):
                found = self._facts(key) if key.startswith(prefix) else None
                if found is not None:
                    yield found

    def _keys(self, start: Path) -> Iterator[str]:
        for here, folders, files in os.walk(start, onerror=_raise_unless_absent):
            path = Path(here)
            if path == self._root:
                folders[:] = [name for name in folders if name != OWN_FOLDER]
            for name in folders:
                if (path / name).is_symlink():
                    self._refuse_link((path / name).relative_to(self._root).as_posix())
            for name in files:
                key = (path / name).relative_to(self._root).as_posix()
                if problem := key_problem(key):
                    raise KeyRefused(self.name, key, problem)
                yield key

    def head(self, key: str) -> ObjectInfo | None:
        self._check_root()
        if key_problem(key):
            return None
        with self._typed_errors():
            return self._facts(key)

    def tags(self, key: str) -> Mapping[str, str]:
        # Extended attributes would not do: copies, archives and many file systems drop them without a word.
        raise RequestRefused(self.name, f"the tags of '{key}'", "a folder keeps none")

    def _facts(self, key: str) -> ObjectInfo | None:
        source = self._open(key)
        if source is None:
            return None
        with source:
            sha256 = hashlib.file_digest(source, "sha256").hexdigest()
            state = os.fstat(source.fileno())
        return ObjectInfo(
            key=key,
            size_bytes=state.st_size,
            etag=sha256,
            sha256=sha256,
            modified_at=datetime.fromtimestamp(state.st_mtime, UTC),
            **self._noted(key, sha256),
        )

    def _open(self, key: str) -> BufferedReader | None:
        file = self._root / key
        if not file.is_file():
            return None
        if not file.resolve().is_relative_to(self._root.resolve()):
            self._refuse_link(key)
        try:
            return file.open("rb")
        except FileNotFoundError:
            return None

    def _refuse_link(self, key: str) -> NoReturn:
        raise KeyRefused(self.name, key, "it is a link that leads out of the folder, or to another one")

    def read(
        self, key: str, *, start: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Iterator[bytes]:
        self._check_root()
        with self._typed_errors():
            source = None if key_problem(key) else self._open(key)
        if source is None:
            raise Missing("object", key, self.name)
        with source:
            with self._typed_errors():
                if if_match is not None and hashlib.file_digest(source, "sha256").hexdigest() != if_match:
                    raise PreconditionFailed(self.name, key, f"its etag is {if_match}")
                end = os.fstat(source.fileno()).st_size
                source.seek(start)
            left = max(0, end - start) if length is None else length
            while left > 0:
                with self._typed_errors():
                    chunk = source.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    return
                left -= len(chunk)
                yield chunk

    def open(self, key: str) -> OpenedObject:
        info = self.head(key)
        if info is None:
            raise Missing("object", key, self.name)
        return OpenedObject(info, self.read(key, if_match=info.etag))

    def put(
        self,
        key: str,
        body: bytes | Iterable[bytes],
        *,
        size_bytes: int,
        sha256: str | None = None,
        if_absent: bool = False,
        if_match: str | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        self._check_root()
        if problem := key_problem(key):
            raise KeyRefused(self.name, key, problem)
        chunks = (body,) if isinstance(body, bytes) else body
        facts: dict[str, Any] = {"content_type": content_type, "metadata": dict(metadata or {})}
        promised = PromisedBody(f"{self.name}/{key}", chunks, size_bytes=size_bytes, sha256=sha256)
        with self._typed_errors():
            draft, sink = self._drafts.open()
        try:
            with sink:
                digest = self._write(sink, promised)
                stored = ObjectInfo(key=key, size_bytes=size_bytes, etag=digest, sha256=digest, **facts)
                with self._typed_errors(), self._drafts.locked():
                    self._check_conditions(key, if_absent=if_absent, if_match=if_match)
                    self._publish(draft, stored)
        finally:
            draft.unlink(missing_ok=True)
        return stored

    def _write(self, sink: BufferedWriter, body: PromisedBody) -> str:
        for chunk in body:
            with self._typed_errors():
                sink.write(chunk)
        digest = body.verify()
        with self._typed_errors():
            sink.flush()
            os.fsync(sink.fileno())
        return digest

    def _check_conditions(self, key: str, *, if_absent: bool, if_match: str | None) -> None:
        if not if_absent and if_match is None:
            return
        current = self._facts(key)
        if if_absent and current is not None:
            raise PreconditionFailed(self.name, key, "the object is absent")
        if if_match is not None and (current is None or current.etag != if_match):
            raise PreconditionFailed(self.name, key, f"its etag is {if_match}")

    def _publish(self, draft: Path, stored: ObjectInfo) -> None:
        target = self._root / stored.key
        if target.is_dir():
            raise KeyRefused(self.name, stored.key, "it is a folder of other objects here")
        for folder in target.relative_to(self._root).parents:
            if (self._root / folder).is_symlink():
                self._refuse_link(stored.key)
            if (self._root / folder).is_file():
                raise KeyRefused(self.name, stored.key, f"'{folder.as_posix()}' is an object, so not a folder here")
        target.parent.mkdir(parents=True, exist_ok=True)
        self._note(stored)
        draft.replace(target)
        self._forget_notes(stored.key, but=stored.etag)

    # The attributes that a file has no place for are noted beside it, under the content they belong to: whichever
    # version a reader finds, it finds the note of that version.

    def _notes(self, key: str) -> Path:
        return self._own / "notes" / hashlib.sha256(key.encode()).hexdigest()

    def _note(self, stored: ObjectInfo) -> None:
        notes = self._notes(stored.key)
        notes.mkdir(parents=True, exist_ok=True)
        draft = self._drafts.path()
        draft.write_text(json.dumps({"content_type": stored.content_type, "metadata": dict(stored.metadata)}))
        draft.replace(notes / stored.etag)

    def _noted(self, key: str, etag: str) -> dict[str, Any]:
        try:
            noted: dict[str, Any] = json.loads((self._notes(key) / etag).read_text())
        except FileNotFoundError:
            return {}
        return noted

    def _forget_notes(self, key: str, *, but: str | None = None) -> None:
        notes = self._notes(key)
        for note in notes.iterdir() if notes.is_dir() else ():
            if note.name != but:
                note.unlink()
        if but is None and notes.is_dir():
            notes.rmdir()

    def delete(self, keys: Iterable[str]) -> Mapping[str, str]:
        self._check_root()
        refused: dict[str, str] = {}
        with self._typed_errors(), self._drafts.locked():
            for key in keys:
                if problem := key_problem(key) or self._remove(key):
                    refused[key] = problem
        return refused

    def uploads(self, prefix: str = "") -> Iterator[Upload]:
        """None: what is written here is a draft of its own until it is whole, and swept where its writer was killed."""
        return iter(())

    def abort(self, upload: Upload) -> None:
        pass

    def _remove(self, key: str) -> str | None:
        file = self._root / key
        if not file.is_file() and not file.is_symlink():
            return None
        try:
            file.unlink()
            self._forget_notes(key)
        except OSError as problem:
            return str(problem)
        for folder in file.parents:
            if folder == self._root or any(folder.iterdir()):
                break
            folder.rmdir()
        return None

    def _check_root(self) -> None:
        if not self._root.is_dir():
            raise Missing("folder", str(self._root), "the file system", fix="create or mount it")

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as problem:
            fix = "check the owner and the mode of the folder"
            raise AccessDenied(self.name, str(problem), fix=fix) from problem
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StoreFull(self.name, str(problem)) from problem
            raise Unreachable(self.name, str(problem)) from problem


def _raise_unless_absent(problem: OSError) -> None:
    if not isinstance(problem, (FileNotFoundError, NotADirectoryError)):
        raise problem
