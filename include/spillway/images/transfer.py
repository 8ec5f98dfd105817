"""Blobs on their way from one repository to another, several at a time and each once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

from spillway.errors import DigestMismatch
from spillway.images.patience import Patience
from spillway.registries.base import Descriptor, ImageRegistry, Manifest
from spillway.threads import told_to_end

PARALLEL_BLOBS = 8
MOUNTED_FROM_BYTES = 2**20
"""A smaller blob is sent sooner than other repositories are asked for it."""


class BlobFate(StrEnum):
    PRESENT = "present"
    MOUNTED = "mounted"
    COPIED = "copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What was done, or with a dry run would be, to have some blobs at the destination."""

    present: int = 0
    mounted: int = 0
    copied: int = 0
    bytes_copied: int = 0

    @classmethod
    def of(cls, fate: BlobFate, size_bytes: int) -> Brought:
        """One blob."""
        return cls(
            present=fate is BlobFate.PRESENT,
            mounted=fate is BlobFate.MOUNTED,
            copied=fate is BlobFate.COPIED,
            bytes_copied=size_bytes if fate is BlobFate.COPIED else 0,
        )

    def __add__(self, other: Brought) -> Brought:
        return Brought(
            present=self.present + other.present,
            mounted=self.mounted + other.mounted,
            copied=self.copied + other.copied,
            bytes_copied=self.bytes_copied + other.bytes_copied,
        )


class BlobMover:
    """Brings blobs of a repository to the same repository of another registry.

    However many images of a run need a blob, it is asked for and sent once. May be used by many threads; it is a
    context manager whose end ends its own threads.
    """

    def __init__(
        self,
        source: ImageRegistry,
        destination: ImageRegistry,
        repository: str,
        *,
        siblings: Collection[str] = (),
        patience: Patience | None = None,
        dry_run: bool = False,
        expect: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        """``siblings``: repositories of the destination that may have some of the blobs already.

        ``expect`` is told of the bytes that are to be sent, and less than none of those that need not be.
        """
        self.source, self.destination, self.repository = source, destination, repository
        self._expect = expect
        self._siblings = [name for name in siblings if name != repository]
        self.patience, self.dry_run = patience or Patience(), dry_run
        self._threads = ThreadPoolExecutor(PARALLEL_BLOBS, thread_name_prefix="blob")
        self._lock = threading.Lock()
        self._asked: dict[str, Future[BlobFate]] = {}
        self._ended = threading.Event()

    def __enter__(self) -> BlobMover:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.end()
        self._threads.shutdown(wait=not told_to_end(kind), cancel_futures=kind is not None)

    def end(self) -> None:
        """Leave off in the middle of whatever is on its way."""
        self._ended.set()

    def bring(self, blobs: Sequence[Descriptor]) -> Brought:
        """Have every blob at the destination; the first failure is raised, the other blobs go on.

        What another image of the run brought is present for this one.
        """
        asked = [(blob, *self._ask(blob)) for blob in blobs]
        brought = Brought()
        for blob, future, ours in asked:
            fate = future.result()
            brought += Brought.of(fate if ours else BlobFate.PRESENT, blob.size_bytes)
        return brought

    def absent(self, manifests: Sequence[Manifest]) -> tuple[Manifest, ...]:
        """Those that the destination does not have, in the same order."""
        known = self._threads.map(lambda one: self.destination.resolve(self.repository, one.digest), manifests)
        return tuple(one for one, digest in zip(manifests, known, strict=True) if digest is None)

    def _ask(self, blob: Descriptor) -> tuple[Future[BlobFate], bool]:
        """What will become of the blob, and whether it was not asked for before."""
        with self._lock:
            known = self._asked.get(blob.digest)
            if known is not None and not (known.done() and known.exception()):
                return known, False
            self._expect(blob.size_bytes)
            future = self._threads.submit(self._brought, blob)
            self._asked[blob.digest] = future
            return future, True

    def _brought(self, blob: Descriptor) -> BlobFate:
        fate = self.patience.run(lambda: self._bring(blob))
        if fate is not BlobFate.COPIED:
            self._expect(-blob.size_bytes)
        return fate

    def _bring(self, blob: Descriptor) -> BlobFate:
        if self.destination.has_blob(self.repository, blob.digest):
            return BlobFate.PRESENT
        holder = self._holder(blob)
        if self.dry_run:
            return BlobFate.MOUNTED if holder else BlobFate.COPIED
        return BlobFate.COPIED if self._send(blob, holder) else BlobFate.MOUNTED

    def _send(self, blob: Descriptor, holder: str | None) -> bool:
        """Whether its bytes had to be sent, and the holder did not have them."""
        try:
            return self.destination.put_blob(
                self.repository, blob.digest, self._chunks(blob), size_bytes=blob.size_bytes, mount_from=holder
            )
        except DigestMismatch:
            # Two copies of one blob at the same moment: the one that ends second may be told off for it.
            if not self.destination.has_blob(self.repository, blob.digest):
                raise
            return True

    def _holder(self, blob: Descriptor) -> str | None:
        """A repository of the destination that has the blob already, so that the registry can take it from there."""
        if blob.size_bytes < MOUNTED_FROM_BYTES:
            return None
        return next((name for name in self._siblings if self.destination.has_blob(name, blob.digest)), None)

    def _chunks(self, blob: Descriptor) -> Iterator[bytes]:
        for chunk in self.source.read_blob(self.repository, blob.digest):
            if self._ended.is_set():
                raise _Ended
            yield chunk


class _Ended(Exception):
    """The run is over; this blob need not be finished."""
