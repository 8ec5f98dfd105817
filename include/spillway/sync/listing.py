"""What both sides have, and what the last verified sync knew, matched by key in bounded memory."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Event

from spillway.errors import IncompleteListing, Missing
from spillway.model import KeyScope, ObjectInfo, SyncedObject, SyncRecord
from spillway.stores.base import ObjectStore, list_data
from spillway.sync.manifest import StoredRecord, is_recorded_version, load_entries, load_record
from spillway.sync.plan import Match
from spillway.sync.rows import Row, Rows
from spillway.threads import worker_threads

log = logging.getLogger(__name__)

Admit = Callable[[str], bool]
"""Whether an object of that key may leave the source."""

VERIFY_EVERY = timedelta(days=7)
"""So long a record of the destination's state is believed without listing the destination."""

_PROBES = 8
"""Recorded objects that are looked at before the record is believed: a destination that was emptied shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Both sides as rows, and the record; ``destination`` is None where the record stands in for it.

    ``unchanged`` says that the source is the version that the record's copy was made of; then ``recorded``, the list
    that the record names, is not read. ``withheld`` counts the objects of the source that may not leave it; there is no
    row of them.
    """

    source: Rows
    destination: Rows | None
    recorded: Rows
    stored: StoredRecord = field(default_factory=StoredRecord)
    unchanged: bool = False
    withheld: int = 0

    def matches(self, settle: Callable[[Row], None] | None) -> Iterator[Match]:
        """Every key of either side once, in order; the recorded rows of those that are as recorded go to ``settle``.

        Without it these are matches like the others.

        Raises:
            IncompleteListing: a listing gave a key twice, so it was shifted while it was read.
        """
        there, known = iter(self.source), iter(self.recorded)
        here = iter(()) if self.destination is None else iter(self.destination)
        source, destination, recorded = next(there, None), next(here, None), next(known, None)
        while (row := _least(_least(source, recorded), destination)) is not None:
            key = row[0]
            found_there = found_here = synced = None
            if recorded is not None and recorded[0] == key:
                _, size_bytes, etag, etag_here, sha256 = recorded
                as_recorded = source == (key, size_bytes, etag, None) and (
                    self.destination is None or destination == (key, size_bytes, etag_here, None)
                )
                if as_recorded and settle is not None:
                    settle(recorded)
                    recorded, source = next(known, None), _following(there, key)
                    destination = None if self.destination is None else _following(here, key)
                    continue
                synced = SyncedObject(size_bytes, etag, etag_here, sha256)
                if self.destination is None:
                    found_here = _info(key, size_bytes, etag_here, sha256)
                recorded = next(known, None)
            if source is not None and source[0] == key:
                found_there = _info(*source)
                source = _following(there, key)
            if destination is not None and destination[0] == key:
                found_here = _info(*destination)
                destination = _following(here, key)
            if found_there is not None or found_here is not None:
                yield Match(key, found_there, found_here, synced)


def list_both(
    source: ObjectStore,
    destination: ObjectStore,
    dataset: str,
    scope: KeyScope,
    *,
    verify: bool,
    admit: Admit,
    now: datetime,
) -> Listed:
    """The source's listing, and the destination's where the record of its state cannot stand in for it.

    The record is looked at while the source is listed.
    """
    withheld, failed = 0, Event()

    def admitted() -> Iterator[ObjectInfo]:
        nonlocal withheld
        for entry in _in_scope(source, scope):
            if failed.is_set():
                return
            if admit(entry.key):
                yield entry
            else:
                withheld += 1

    def look() -> tuple[StoredRecord, bool]:
        try:
            stored = load_record(destination, dataset)
            record = _of_source(stored, source.name, scope)
            if verify or record is None or not (record.whole and record.sample and _is_fresh(record, now)):
                return stored, False
            return stored, _is_as_recorded(destination, record, pool)
        except BaseException:
            failed.set()
            raise

    with worker_threads(1 + _PROBES, "record") as pool:
        looked = pool.submit(look)
        there = _rows(admitted())
        stored, trusted = looked.result()
    record = _of_source(stored, source.name, scope)
    unchanged = trusted and record is not None and is_recorded_version(there, record)
    recorded = None if unchanged or record is None else _recorded(destination, record)
    trusted &= unchanged or recorded is not None
    return Listed(
        source=there,
        destination=None if trusted else _rows(_in_scope(destination, scope)),
        recorded=recorded or Rows(),
        stored=stored,
        unchanged=unchanged,
        withheld=withheld,
    )


def _of_source(stored: StoredRecord, source: str, scope: KeyScope) -> SyncRecord | None:
    """The record, unless it is a foreign one."""
    record = stored.record
    return record if record is not None and (record.source, record.scope) == (source, scope) else None


def _recorded(destination: ObjectStore, record: SyncRecord) -> Rows | None:
    """The objects of the last verified copy; None where their list is damaged."""
    try:
        return Rows((key, *synced) for key, synced in load_entries(destination, record))
    except (Missing, ValueError) as problem:
        if isinstance(problem, Missing) and problem.kind != "object":
            raise
        log.warning("%s/%s cannot be used, so both sides are compared: %s", destination.name, record.entries, problem)
        return None


def _is_fresh(record: SyncRecord, now: datetime) -> bool:
    """Whether both sides were compared lately; a moment still to come is of a wrong clock and counts as old."""
    return timedelta(0) <= now - record.verified_at < VERIFY_EVERY


def _is_as_recorded(destination: ObjectStore, record: SyncRecord, pool: Executor) -> bool:
    """Whether some of the recorded objects are still there; False of a record that names none."""

    def is_there(key: str) -> bool:
        found = destination.head(key)
        return found is not None and (found.size_bytes, found.etag) == record.sample[key]

    some = random.sample(sorted(record.sample), min(_PROBES, len(record.sample)))
    if all(pool.map(is_there, some)):
        return True
    log.warning("the destination is not as its record says, so both sides are compared")
    return False


def _rows(entries: Iterable[ObjectInfo]) -> Rows:
    return Rows((entry.key, entry.size_bytes, entry.etag, entry.sha256) for entry in entries)


def _in_scope(store: ObjectStore, scope: KeyScope) -> Iterator[ObjectInfo]:
    return (entry for entry in list_data(store, scope.prefix) if scope.holds(entry.key))


def _info(key: str, size_bytes: int, etag: str, sha256: str | None) -> ObjectInfo:
    return ObjectInfo(key=key, size_bytes=size_bytes, etag=etag, sha256=sha256)


def _least(one: Row | None, other: Row | None) -> Row | None:
    """The row of the lesser key; the other one where there is only one."""
    if one is None or other is None:
        return one or other
    return one if one[0] <= other[0] else other


def _following(rows: Iterator[Row], key: str) -> Row | None:
    row = next(rows, None)
    if row is not None and row[0] == key:
        raise IncompleteListing(f"a listing gave '{key}' twice, so it cannot be trusted to be whole; run it again")
    return row
