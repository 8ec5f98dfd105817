"""Blobs on their way from one registry to another, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

from spillway.errors import DigestMismatch, SpillwayError
from spillway.registries.base import ImageRegistry
from spillway.registries.content import Descriptor

RETRY_PAUSES_SECONDS = (0.5, 2.0, 6.0)
"""Pauses before a blob is begun again; together they outlast the restart of a registry."""

Progress = Callable[[int, int], None]
"""Called from several threads with the bytes copied so far and the bytes to copy in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How blobs came to the destination; mounted ones moved no bytes."""

    blobs_copied: int
    blobs_mounted: int
    bytes_copied: int


class BlobCopier:
    """Brings blobs of one repository into another registry's repository."""

    def __init__(
        self,
        source: ImageRegistry,
        destination: ImageRegistry,
        *,
        repository: str,
        target: str,
        mount_from: Sequence[str] = (),
    ) -> None:
        self._source, self._destination = source, destination
        self._repository, self._target = repository, target
        self._mount_from = tuple(other for other in mount_from if other != target)

    def copy(self, blobs: Sequence[Descriptor], *, parallel: int, on_progress: Progress | None = None) -> Moved:
        """Mount or copy every blob; the first failure ends the others and is raised."""
        counter = _Counter(sum(blob.size_bytes for blob in blobs), on_progress)
        with ThreadPoolExecutor(parallel) as threads:
            futures = [threads.submit(self._bring, blob, counter) for blob in blobs]
            try:
                finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
            except BaseException:
                counter.stopped.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        copied = [future.result() for future in futures]
        return Moved(
            blobs_copied=sum(copied),
            blobs_mounted=len(copied) - sum(copied),
            bytes_copied=sum(blob.size_bytes for blob, moved in zip(blobs, copied, strict=True) if moved),
        )

    def _bring(self, blob: Descriptor, counter: _Counter) -> bool:
        """Whether bytes moved, which a mount makes unnecessary."""
        for other in self._mount_from:
            if self._destination.mount_blob(self._target, blob.digest, other):
                counter.add(blob.size_bytes)
                return False
        for pause in RETRY_PAUSES_SECONDS:
            try:
                self._copy_once(blob, counter)
                return True
            except SpillwayError as problem:
                if not problem.retry_helps or counter.stopped.wait(pause):
                    raise
        self._copy_once(blob, counter)
        return True

    def _copy_once(self, blob: Descriptor, counter: _Counter) -> None:
        sent = 0

        def counted() -> Iterator[bytes]:
            nonlocal sent
            for chunk in self._source.read_blob(self._repository, blob.digest):
                if counter.stopped.is_set():
                    raise _Stopped
                yield chunk
                sent += len(chunk)
                counter.add(len(chunk))

        try:
            self._destination.put_blob(self._target, blob.digest, counted(), size_bytes=blob.size_bytes)
        except (SpillwayError, _Stopped) as problem:
            counter.add(-sent)
            # Two copies of one blob at the same moment: the one that ends second may be told off for it.
            if not (isinstance(problem, DigestMismatch) and self._destination.has_blob(self._target, blob.digest)):
                raise


class _Stopped(Exception):
    """Another blob has failed; this one need not be finished."""


class _Counter:
    """Bytes of all threads together."""

    def __init__(self, total: int, on_progress: Progress | None) -> None:
        self.stopped = threading.Event()
        self._total, self._done, self._on_progress = total, 0, on_progress
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            done = self._done
        if self._on_progress is not None:
            self._on_progress(done, self._total)
