"""Verified copies of single objects between two stores, several at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from spillway.errors import AccessDenied, KeyRefused, Missing, SpillwayError, StoreFull, Unreachable
from spillway.stores.base import ObjectStore
from spillway.stores.parts import MIB
from spillway.sync.compare import COPY_OF, SyncedObject, copy_of
from spillway.sync.plan import PlannedObject
from spillway.sync.report import ObjectFate, ObjectOutcome

log = logging.getLogger(__name__)

SMALL_MAX_BYTES = 16 * MIB
SMALL_THREADS = 8
LARGE_THREADS = 2
"""A large object is sent in parts, several in flight; more threads would only take memory."""

FAILURES_IN_A_ROW_MAX = 8
"""Objects in a row that a store did not answer for or let nobody have, before the rest is not tried any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The outcome of one copy, and what to remember of it where it succeeded."""

    outcome: ObjectOutcome
    synced: SyncedObject | None = None


class Transfer:
    """Copies from one store to another; ``run`` once.

    Raises:
        Unreachable, AccessDenied, StoreFull: going on would only repeat the error; what was copied is kept.
    """

    def __init__(self, source: ObjectStore, destination: ObjectStore) -> None:
        self._source, self._destination = source, destination
        self._lock = Lock()
        self._failures_in_a_row = 0
        self._failures = 0
        self._fatal: SpillwayError | None = None

    def run(self, wanted: Sequence[PlannedObject]) -> Sequence[Copied]:
        """Copy them all; what became of each, in the order in which they ended."""
        small = [planned for planned in wanted if planned.size_bytes <= SMALL_MAX_BYTES]
        large = [planned for planned in wanted if planned.size_bytes > SMALL_MAX_BYTES]
        ended: list[Copied] = []
        for batch, threads in ((small, SMALL_THREADS), (large, LARGE_THREADS)):
            with _pool(threads) as pool:
                for future in as_completed([pool.submit(self._copy, planned) for planned in batch]):
                    ended.append(future.result())
                    if self._fatal is not None:
                        raise self._fatal
        return ended

    def _copy(self, planned: PlannedObject) -> Copied:
        if self._fatal is not None:
            return _ended(planned, ObjectFate.FAILED, f"not tried: {self._fatal}")
        failures_before = self._failures
        try:
            copied = self._copy_version(planned)
        except KeyRefused as refusal:
            return _ended(planned, ObjectFate.REFUSED, str(refusal))
        except SpillwayError as problem:
            self._failed(problem)
            return _ended(planned, ObjectFate.FAILED, str(problem))
        with self._lock:
            # A copy that was under way when others began to fail says nothing of the store as it is now.
            if self._failures == failures_before:
                self._failures_in_a_row = 0
        return copied

    def _failed(self, problem: SpillwayError) -> None:
        with self._lock:
            self._failures += 1
            if isinstance(problem, (Unreachable, AccessDenied)):
                self._failures_in_a_row += 1
            if isinstance(problem, StoreFull) or self._failures_in_a_row >= FAILURES_IN_A_ROW_MAX:
                self._fatal = problem

    def _copy_version(self, planned: PlannedObject) -> Copied:
        # Listings carry no attributes; and what changed since the listing is copied as it is now.
        source = self._source.head(planned.key)
        if source is None:
            raise Missing("object", planned.key, self._source.name, fix="it was deleted during the sync; run it again")
        stored = self._destination.put(
            planned.key,
            self._source.read(planned.key, if_match=source.etag),
            size_bytes=source.size_bytes,
            sha256=source.sha256,
            content_type=source.content_type,
            metadata={**source.metadata, COPY_OF: copy_of(self._source.name, source.etag)},
        )
        log.debug("copied %s (%d bytes): %s", planned.key, source.size_bytes, planned.reason)
        return Copied(
            outcome=ObjectOutcome(
                key=planned.key, fate=ObjectFate.COPIED, reason=planned.reason, size_bytes=source.size_bytes
            ),
            synced=SyncedObject(
                size_bytes=source.size_bytes,
                source_etag=source.etag,
                destination_etag=stored.etag,
                sha256=stored.sha256,
            ),
        )


def _ended(planned: PlannedObject, fate: ObjectFate, reason: str) -> Copied:
    return Copied(outcome=ObjectOutcome(key=planned.key, fate=fate, reason=reason, size_bytes=planned.size_bytes))


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that, when the block fails, drops what has not begun."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="sync")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
