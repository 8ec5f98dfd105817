"""The record of a verified sync, kept in the destination store beside the data.

The record itself is small and replaced by compare-and-set; it names the list of the copy's objects, which is written
before it, under a name of its own, and never changed. While a sync changes the destination the record is marked as not
whole, so that a half-changed dataset is never taken for a whole one; the compare still uses it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Thread
from urllib.parse import quote

from spillway.codec import decode, encode, from_json
from spillway.errors import ConfigError, Missing, PreconditionFailed, SpillwayError
from spillway.model import SyncRecord
from spillway.stores.base import OWN_PREFIX, ObjectStore
from spillway.stores.entries import Entry, put_entries, read_entries
from spillway.sync.rows import Row
from spillway.threads import leave, told_to_end

log = logging.getLogger(__name__)

_RECORDS = f"{OWN_PREFIX}sync/"
_ENTRIES = f"{OWN_PREFIX}entries/"
_RECORD_MAX_BYTES = 1 << 20
"""More than any record has; of what else lies in its place no more is read."""
_SAMPLE_OBJECTS = 64
_LEFT_OVER_AFTER = timedelta(hours=1)
"""A list that no record names is either about to be named, still being read, or left over; by then it is left over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record as stored; ``record`` is None where it is absent or unreadable, ``body`` only where it is absent.

    ``etag`` is None where whoever read the bytes did not pass it on.
    """

    record: SyncRecord | None = None
    body: bytes | None = None
    etag: str | None = None

    @property
    def whole(self) -> bool:
        return self.record is not None and self.record.whole


def manifest_key(dataset: str) -> str:
    return f"{_RECORDS}{quote(dataset, safe='')}.json"


def verified_copies(store: ObjectStore) -> Mapping[str, int]:
    """The bytes of each dataset of which this store holds a whole copy, as verified by its last sync, by name."""
    stored = (_load(store, entry.key) for entry in store.list(_RECORDS))
    whole = (found.record for found in stored if found.record is not None and found.whole)
    return {record.dataset: record.size_bytes for record in whole}


def load_record(store: ObjectStore, dataset: str) -> StoredRecord:
    """What the last verified sync left; an unreadable record counts as none and will be replaced."""
    return _load(store, manifest_key(dataset))


def stored_record(body: bytes, where: str, *, etag: str | None = None) -> StoredRecord:
    """The record of these bytes; ``where`` they lie is for the log."""
    try:
        record = decode(SyncRecord, from_json(body), where)
        if not 0 <= record.objects <= sys.maxsize:
            raise ValueError(f"it has {record.objects} objects")
        return StoredRecord(record=record, body=body, etag=etag)
    except (ValueError, ConfigError) as problem:
        log.warning("%s is not a sync record and will be replaced: %s", where, problem)
        return StoredRecord(body=body, etag=etag)


def load_entries(store: ObjectStore, record: SyncRecord) -> Iterator[Entry]:
    """The objects of the copy that are verified, in the order of keys.

    Raises:
        Missing: the list that the record names is gone.
        ValueError: it is not the list that was written.
    """
    count, before = 0, None
    for entry in read_entries(store, record.known or record.entries):
        if before is not None and entry[0] <= before:
            raise ValueError(f"'{entry[0]}' comes after '{before}'")
        before, count = entry[0], count + 1
        yield entry
    if record.known is None and count != record.objects:
        raise ValueError(f"expected {record.objects} entries, it has {count}")


def write_entries(
    store: ObjectStore, record: SyncRecord, entries: Iterable[Entry], *, name: str | None = None
) -> SyncRecord:
    """Store the list of a copy; the record that names it, to be saved.

    Args:
        name: of the list, where whoever writes it again after a crash has to find it; one of its own otherwise.
    """
    counted = _Counted(entries)
    key = entries_key(record.dataset, name or uuid.uuid4().hex)
    put_entries(store, key, counted)
    return replace(
        record,
        entries=key,
        objects=counted.objects,
        size_bytes=counted.size_bytes,
        versions=counted.versions.hexdigest(),
        sample=dict(counted.sample),
    )


def entries_key(dataset: str, name: str) -> str:
    return f"{_ENTRIES}{quote(dataset, safe='')}/{name}.gz"


class _Counted:
    """Entries, counted while somebody goes through them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = entries
        self.objects = self.size_bytes = 0
        self.versions = hashlib.sha256()
        self.sample: list[tuple[str, tuple[int, str]]] = []

    def __iter__(self) -> Iterator[Entry]:
        for key, synced in self._entries:
            self.objects += 1
            self.size_bytes += synced.size_bytes
            self.versions.update(_version(key, synced.source_etag))
            # Each with the same chance, however many there turn out to be.
            place = int(random.random() * self.objects)
            if len(self.sample) < _SAMPLE_OBJECTS:
                self.sample.append((key, (synced.size_bytes, synced.destination_etag)))
            elif place < _SAMPLE_OBJECTS:
                self.sample[place] = (key, (synced.size_bytes, synced.destination_etag))
            yield key, synced


def _version(key: str, etag: str) -> bytes:
    return f"{key}\0{etag}\0".encode()


def is_recorded_version(rows: Iterable[Row], record: SyncRecord) -> bool:
    """Whether these rows of the source's listing, in the order of keys, are all that the record's copy was made of."""
    objects = size_bytes = 0
    versions = hashlib.sha256()
    for key, size, etag, _ in rows:
        objects += 1
        size_bytes += size
        versions.update(_version(key, etag))
    return (objects, size_bytes, versions.hexdigest()) == (record.objects, record.size_bytes, record.versions)


def save_record(store: ObjectStore, record: SyncRecord, *, over: StoredRecord) -> StoredRecord:
    """Replace exactly the version ``over``; gives the record that is there then, another sync's where both agree.

    Raises:
        PreconditionFailed: another sync of the dataset recorded something else meanwhile.
    """
    key, body = manifest_key(record.dataset), json.dumps(encode(record), sort_keys=True).encode()
    try:
        etag = over.etag or _etag_of(store, key, over.body)
        stored = store.put(
            key,
            body,
            size_bytes=len(body),
            if_absent=etag is None,
            if_match=etag,
            content_type="application/json",
        )
    except PreconditionFailed:
        # Two runs that need the same dataset sync it side by side; that they agree is as good as having been first.
        theirs = load_record(store, record.dataset)
        if theirs.record is not None and _agree(theirs.record, record):
            return theirs
        if theirs.record is not None and theirs.whole:
            # Copies of two versions may have crossed: only the next sync can tell what lies there now.
            save_record(store, replace(theirs.record, whole=False), over=theirs)
        raise
    return StoredRecord(record=record, body=body, etag=stored.etag)


@contextmanager
def distrusted_on_failure(
    store: ObjectStore, dataset: str, mine: Callable[[], StoredRecord] = StoredRecord
) -> Iterator[None]:
    """Where the block fails, a record other than ``mine`` does not call the copy whole any more.

    Another sync wrote it while this one put objects too, and nobody has compared what then lies there. A block that is
    told to end does not wait for a store that is silent.
    """

    def try_to() -> None:
        with suppress(SpillwayError):  # the first failure is the one to tell
            distrust(store, dataset, unless=mine())

    try:
        yield
    except BaseException as problem:
        if told_to_end(type(problem)):
            aside = Thread(target=try_to, name="distrust", daemon=True)
            aside.start()
            leave([aside])
        else:
            try_to()
        raise


_NO_RECORD = StoredRecord()


def distrust(store: ObjectStore, dataset: str, *, unless: StoredRecord = _NO_RECORD) -> None:
    """A record of the dataset, unless it is that one, does not call its copy whole any more: the next sync looks.

    Raises:
        PreconditionFailed: a sync of that dataset recorded something else meanwhile.
    """
    theirs = load_record(store, dataset)
    if theirs.record is not None and theirs.whole and theirs.body != unless.body:
        save_record(store, replace(theirs.record, whole=False), over=theirs)


def check_unchanged(store: ObjectStore, dataset: str, stored: StoredRecord) -> None:
    """Return where the record still is what it was.

    Raises:
        PreconditionFailed: another sync of the dataset has begun or ended meanwhile.
    """
    if load_record(store, dataset).body != stored.body:
        raise PreconditionFailed(store.name, manifest_key(dataset), "it is as it was read")


def remove_left_overs(store: ObjectStore, stored: StoredRecord) -> None:
    """Delete the lists of this dataset that its record does not name; the time is that of the store's own clock."""
    record = stored.record
    if record is None:
        return
    listed = list(store.list(f"{_ENTRIES}{quote(record.dataset, safe='')}/"))
    named = (record.entries, record.known)
    dated = {entry.key: entry.modified_at for entry in listed if entry.modified_at is not None}
    newest = max(dated.values(), default=None)
    left = [
        key for key, at in dated.items() if key not in named and newest is not None and newest - at > _LEFT_OVER_AFTER
    ]
    if left:
        store.delete(left)


def _etag_of(store: ObjectStore, key: str, body: bytes | None) -> str | None:
    """The etag of the version that has these bytes; None where there should be no object."""
    if body is None:
        return None
    found = _load(store, key)
    if found.body != body:
        raise PreconditionFailed(store.name, key, "it is as it was read")
    return found.etag


def _load(store: ObjectStore, key: str) -> StoredRecord:
    try:
        opened = store.open(key)
        body = _beginning(opened.chunks, _RECORD_MAX_BYTES)
    except Missing as problem:
        if problem.kind != "object":
            raise
        return StoredRecord()
    return stored_record(body, f"{store.name}/{key}", etag=opened.info.etag)


def _beginning(chunks: Iterable[bytes], most: int) -> bytes:
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) >= most:
            break
    return bytes(found[:most])


def _agree(theirs: SyncRecord, mine: SyncRecord) -> bool:
    same = (theirs.source, theirs.scope, theirs.versions) == (mine.source, mine.scope, mine.versions)
    return same and theirs.whole >= mine.whole
