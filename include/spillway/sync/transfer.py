"""Verified copies of single objects between two stores, several at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from threading import Lock
from typing import Any

from spillway.errors import (
    AccessDenied,
    DigestMismatch,
    KeyRefused,
    Missing,
    PreconditionFailed,
    RequestRefused,
    SpillwayError,
    StoreFull,
    Unreachable,
)
from spillway.model import ObjectInfo, SyncedObject
from spillway.stores import parts
from spillway.stores.base import ObjectStore
from spillway.stores.parts import RangedBody
from spillway.sync.compare import COPY_OF, compare_content, copy_of
from spillway.sync.leaving import TagRules, bar_of, bar_of_version
from spillway.sync.plan import PlannedObject
from spillway.sync.report import ObjectFate, ObjectOutcome
from spillway.sync.workers import Workers

log = logging.getLogger(__name__)

LARGE_BYTES = parts.PARTS_IN_FLIGHT * parts.PART_WISH_BYTES
"""What is under way of an object at once, however large it is."""

UnderWay = Callable[[int], AbstractContextManager[object]]
"""Gives the block in which so many bytes are read and sent; it is entered when that may begin."""

AHEAD_MAX = 128
"""Objects that are taken from the caller before the first of them has ended."""

TRIES = 3
"""Of an object that changes while it is copied or arrives damaged; requests have tries of their own."""

FAILURES_IN_A_ROW_MAX = 8
"""Objects in a row that a store did not answer for or let nobody have, before the rest is not tried any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The outcome of one copy, and what to remember of it where it succeeded."""

    outcome: ObjectOutcome
    synced: SyncedObject | None = None


class Transfer:
    """Copies from one store to another; ``run`` once."""

    def __init__(
        self,
        source: ObjectStore,
        destination: ObjectStore,
        under_way: UnderWay = nullcontext,
        *,
        tag_rules: TagRules | None = None,
        planned_long_ago: bool = False,
    ) -> None:
        """Tags are asked for of a version that the plan has not seen; with ``planned_long_ago`` of every object."""
        self._source, self._destination, self._under_way = source, destination, under_way
        self._tag_rules, self._planned_long_ago = tag_rules, planned_long_ago
        self._lock = Lock()
        self._failures_in_a_row = 0
        self._fatal: SpillwayError | None = None

    def run(self, wanted: Iterable[PlannedObject]) -> Iterator[Copied]:
        """Copy them all; gives what became of each as it ends, while the next ones are under way.

        No more than a few dozen are taken from ``wanted``, which may be endless, before they end, and it is iterated in
        the caller's thread only. Whoever stops iterating stops the transfer; what is under way has a moment to end.
        Of keys of which one begins another as its folder (``d`` and ``d/x``) one ends before the other begins.

        Raises:
            Unreachable, AccessDenied, StoreFull: going on would only repeat the error; what was copied is kept.
        """
        with Workers(self._copy) as workers:
            for planned in wanted:
                while workers.crosses(planned.key):
                    yield self._ended(workers)
                workers.begin(planned)
                while workers.under_way >= AHEAD_MAX or workers.any_ended:
                    yield self._ended(workers)
            while workers.under_way:
                yield self._ended(workers)

    def _ended(self, workers: Workers[Copied]) -> Copied:
        copied = workers.next_ended()
        if self._fatal is not None:
            raise self._fatal
        return copied

    def _copy(self, planned: PlannedObject) -> Copied:
        with self._under_way(min(planned.size_bytes, LARGE_BYTES)):
            return self._copy_unless_hopeless(planned)

    def _copy_unless_hopeless(self, planned: PlannedObject) -> Copied:
        if self._fatal is not None:
            return _ended(planned, ObjectFate.FAILED, f"not tried: {self._fatal}")
        try:
            copied = self._copy_some_version(planned)
        except SpillwayError as problem:
            self._failed(problem)
            return _ended(planned, _fate(problem), str(problem))
        with self._lock:
            # It may have been under way when others began to fail; of those there are no more than threads.
            self._failures_in_a_row = 0
        return copied

    def _failed(self, problem: SpillwayError) -> None:
        with self._lock:
            if isinstance(problem, (Unreachable, AccessDenied)):
                self._failures_in_a_row += 1
            if isinstance(problem, StoreFull) or self._failures_in_a_row >= FAILURES_IN_A_ROW_MAX:
                self._fatal = problem

    def _copy_some_version(self, planned: PlannedObject) -> Copied:
        """Copy the present version; again where it was replaced under way, or its bytes arrived damaged.

        What is read replaces only what was seen at the destination before: a slow copy of an older version never takes
        the place of a newer one that another sync has put meanwhile.
        """
        condition = _only_over(planned.destination)
        for _ in range(TRIES - 1):
            try:
                return self._copy_version(planned, condition)
            except (DigestMismatch, PreconditionFailed) as problem:
                log.info("%s is copied once more: %s", planned.key, problem)
                overtaken = isinstance(problem, PreconditionFailed) and problem.where == self._destination.name
            if overtaken:
                here = self._destination.head(planned.key)
                if here is not None and (copied := self._copied_by_another(planned, here)):
                    return copied
                # A server that keeps keys as folders takes an absent `d`, or `d/`, for there because of a `d/x`.
                condition = {} if here is None and "if_absent" in condition else _only_over(here)
        return self._copy_version(planned, condition)

    def _copied_by_another(self, planned: PlannedObject, here: ObjectInfo) -> Copied | None:
        there = self._source.head(planned.key)
        if there is None or not compare_content(there, here, None, source_name=self._source.name).equal:
            return None
        reason = "another sync has copied it meanwhile"
        return Copied(
            outcome=ObjectOutcome(planned.key, ObjectFate.UNCHANGED, reason, there.size_bytes),
            synced=SyncedObject(there.size_bytes, there.etag, here.etag, here.sha256),
        )

    def _copy_version(self, planned: PlannedObject, condition: Mapping[str, Any]) -> Copied:
        # Listings carry no attributes; and what changed since the listing is copied as it is now.
        rules, bar = self._tag_rules, None
        if self._planned_long_ago and rules is not None and rules.decide(planned.key):
            bar = bar_of(self._source, planned.key, rules)
        source, body = self._present_version(planned)
        if bar is None and (planned.source is None or source.etag != planned.source.etag):
            bar = bar_of_version(self._source, source, rules)
        if bar is not None:
            return _ended(planned, ObjectFate.REFUSED, bar.reason)
        stored = self._destination.put(
            planned.key,
            body,
            size_bytes=source.size_bytes,
            sha256=source.sha256,
            content_type=source.content_type,
            metadata={**source.metadata, COPY_OF: copy_of(self._source.name, source.etag)},
            **condition,
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

    def _present_version(self, planned: PlannedObject) -> tuple[ObjectInfo, Iterable[bytes]]:
        """The object as it is now: a small one by one request, a large one by parts that are pinned to its version."""
        key = planned.key
        if planned.size_bytes <= parts.SINGLE_MAX_BYTES:
            try:
                opened = self._source.open(key)
            except Missing as problem:
                raise self._gone(key) if problem.kind == "object" else problem from problem
            return opened.info, opened.chunks
        source = self._source.head(key)
        if source is None:
            raise self._gone(key)

        def read(start: int, length: int) -> Iterator[bytes]:
            return self._source.read(key, start=start, length=length, if_match=source.etag)

        return source, RangedBody(source.size_bytes, read)

    def _gone(self, key: str) -> Missing:
        return Missing("object", key, self._source.name, fix="it was deleted during the sync; run it again")


def _only_over(here: ObjectInfo | None) -> Mapping[str, Any]:
    """The condition of a put: that still lies there what was seen."""
    return {"if_absent": True} if here is None else {"if_match": here.etag}


def _fate(problem: SpillwayError) -> ObjectFate:
    for_ever = isinstance(problem, (KeyRefused, RequestRefused, AccessDenied))
    return ObjectFate.REFUSED if for_ever else ObjectFate.FAILED


def _ended(planned: PlannedObject, fate: ObjectFate, reason: str) -> Copied:
    return Copied(outcome=ObjectOutcome(key=planned.key, fate=fate, reason=reason, size_bytes=planned.size_bytes))
