"""The record of a sync is replaced only by who knew the version before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from spillway.codec import encode
from spillway.errors import PreconditionFailed
from spillway.model import KeyScope, SyncRecord
from spillway.stores.local import LocalStore
from spillway.sync.manifest import (
    StoredRecord,
    distrusted_on_failure,
    load_record,
    manifest_key,
    save_record,
    verified_copies,
)
from spillway.testing.polling import eventually


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def record(version: str, dataset: str = "digits", *, whole: bool = True) -> SyncRecord:
    return SyncRecord(
        dataset=dataset,
        source="s3://datasets@onprem",
        scope=KeyScope(prefix="d/"),
        whole=whole,
        entries=f"of {version}",
        objects=1,
        size_bytes=3,
        versions=version,
        verified_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_what_was_saved_is_loaded(store: LocalStore) -> None:
    saved = save_record(store, record("1"), over=StoredRecord())
    assert load_record(store, "digits") == saved
    assert (saved.record, saved.whole) == (record("1"), True)
    assert load_record(store, "other") == StoredRecord()


def test_a_dataset_may_be_called_anything(store: LocalStore) -> None:
    names = {"digits", "team/ä b", "../x", "a.json"}
    for name in names:
        save_record(store, record("1", dataset=name), over=StoredRecord())
    assert verified_copies(store).keys() == names


def test_only_whole_copies_are_verified(store: LocalStore) -> None:
    save_record(store, record("1", dataset="open", whole=False), over=StoredRecord())
    save_record(store, record("1", dataset="whole"), over=StoredRecord())
    assert verified_copies(store).keys() == {"whole"}


def test_who_records_the_same_state_second_succeeds_too(store: LocalStore) -> None:
    first = save_record(store, record("1"), over=StoredRecord())
    assert save_record(store, record("1"), over=StoredRecord()) == first


def test_who_records_another_state_second_fails_and_the_copy_no_longer_counts_as_whole(store: LocalStore) -> None:
    save_record(store, record("2"), over=StoredRecord())
    with pytest.raises(PreconditionFailed):
        save_record(store, record("1"), over=StoredRecord())
    left = load_record(store, "digits")
    assert (left.record, left.whole) == (record("2", whole=False), False)


def test_an_open_record_of_the_same_state_does_not_stand_in_for_a_whole_one(store: LocalStore) -> None:
    save_record(store, record("1", whole=False), over=StoredRecord())
    with pytest.raises(PreconditionFailed):
        save_record(store, record("1"), over=StoredRecord())


def counting(objects: object) -> bytes:
    return json.dumps(encode(record("1")) | {"objects": objects}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[1]", b'{"dataset": "digits"}', b'{"unknown": 1}', b"\xff", b"[" * 100_000,
        counting(-5), counting(10**30), counting("many"),
    ],
    ids=lambda body: body[:24].decode(errors="replace"),
)  # fmt: skip
def test_a_record_that_cannot_be_read_counts_as_none_and_can_be_replaced(store: LocalStore, body: bytes) -> None:
    store.put(manifest_key("digits"), body, size_bytes=len(body))
    loaded = load_record(store, "digits")
    assert loaded.record is None
    assert save_record(store, record("1"), over=loaded).whole


def test_of_what_is_far_too_large_for_a_record_no_more_is_read_than_a_record_has(tmp_path: Path) -> None:
    class CountingStore(LocalStore):
        seen = 0

        def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
            for chunk in super().read(key, **wanted):
                CountingStore.seen += len(chunk)
                yield chunk

    store = CountingStore(tmp_path)
    huge = counting(1) + bytes(32 << 20)
    store.put(manifest_key("digits"), huge, size_bytes=len(huge))
    loaded = load_record(store, "digits")
    assert loaded.record is None
    assert save_record(store, record("1"), over=loaded).whole
    assert CountingStore.seen < len(huge) / 4


def test_a_record_that_somebody_deletes_while_it_is_read_counts_as_none(tmp_path: Path) -> None:
    class DeletedStore(LocalStore):
        def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
            self.delete([key])
            return super().read(key, **wanted)

    store = DeletedStore(tmp_path)
    save_record(store, record("1"), over=StoredRecord())
    assert load_record(store, "digits") == StoredRecord()


class SilentStore(LocalStore):
    """A store that answers no read until it is let."""

    answering = Event()
    answered = False

    def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
        self.answering.wait(20)
        SilentStore.answered = True
        return super().read(key, **wanted)


def test_a_sync_that_is_told_to_end_does_not_wait_for_a_silent_store(tmp_path: Path) -> None:
    store = SilentStore(tmp_path)
    SilentStore.answering.set()
    save_record(store, record("theirs"), over=StoredRecord())
    SilentStore.answering.clear()
    SilentStore.answered = False
    with pytest.raises(KeyboardInterrupt), distrusted_on_failure(store, "digits"):
        raise KeyboardInterrupt
    assert not SilentStore.answered
    SilentStore.answering.set()
    eventually(lambda: not load_record(store, "digits").whole)  # the thread that was left behind does its part
