"""The record of a sync is replaced only by who knew the version before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spillway.codec import encode
from spillway.errors import PreconditionFailed
from spillway.stores.local import LocalStore
from spillway.sync.compare import SyncedObject, SyncManifest
from spillway.sync.manifest import StoredManifest, load_manifest, manifest_key, save_manifest, verified_datasets


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


def manifest(version: str, dataset: str = "digits") -> SyncManifest:
    synced = SyncedObject(size_bytes=3, source_etag=version, destination_etag=f"copy-{version}")
    return SyncManifest(dataset=dataset, source="s3://datasets@onprem", prefix="d/", objects={"d/ä b": synced})


def test_what_was_saved_is_loaded(store: LocalStore) -> None:
    saved = save_manifest(store, manifest("1"), over=StoredManifest(), whole=True)
    assert load_manifest(store, "digits") == saved
    assert (saved.manifest, saved.whole) == (manifest("1"), True)
    assert load_manifest(store, "other") == StoredManifest()


def test_a_dataset_may_be_called_anything(store: LocalStore) -> None:
    names = {"digits", "team/ä b", "../x", "a.json"}
    for name in names:
        save_manifest(store, manifest("1", dataset=name), over=StoredManifest(), whole=True)
    assert verified_datasets(store) == names


def test_only_whole_copies_are_verified(store: LocalStore) -> None:
    save_manifest(store, manifest("1", dataset="open"), over=StoredManifest(), whole=False)
    save_manifest(store, manifest("1", dataset="whole"), over=StoredManifest(), whole=True)
    assert verified_datasets(store) == {"whole"}


def test_who_records_the_same_state_second_succeeds_too(store: LocalStore) -> None:
    first = save_manifest(store, manifest("1"), over=StoredManifest(), whole=True)
    assert save_manifest(store, manifest("1"), over=StoredManifest(), whole=True) == first


def test_who_records_another_state_second_fails_and_the_copy_no_longer_counts_as_whole(store: LocalStore) -> None:
    save_manifest(store, manifest("2"), over=StoredManifest(), whole=True)
    with pytest.raises(PreconditionFailed):
        save_manifest(store, manifest("1"), over=StoredManifest(), whole=True)
    left = load_manifest(store, "digits")
    assert (left.manifest, left.whole) == (manifest("2"), False)


def test_an_open_record_of_the_same_state_does_not_stand_in_for_a_whole_one(store: LocalStore) -> None:
    save_manifest(store, manifest("1"), over=StoredManifest(), whole=False)
    with pytest.raises(PreconditionFailed):
        save_manifest(store, manifest("1"), over=StoredManifest(), whole=True)


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"dataset": "digits"}', b'{"unknown": 1}', b"\xff"])
def test_a_record_that_cannot_be_read_counts_as_none_and_can_be_replaced(store: LocalStore, body: bytes) -> None:
    store.put(manifest_key("digits"), body, size_bytes=len(body))
    loaded = load_manifest(store, "digits")
    assert loaded.manifest is None
    assert save_manifest(store, manifest("1"), over=loaded, whole=True).whole


class BusyStore(LocalStore):
    """Another sync replaces the record between the look at it and its reading, as often as told."""

    replaced, times = 0, 0

    def read(self, key: str, **wanted: Any) -> Iterator[bytes]:
        if self.replaced < self.times:
            self.replaced += 1
            body = json.dumps(encode(manifest(f"of {self.replaced}"))).encode()
            self.put(key, body, size_bytes=len(body))
        return super().read(key, **wanted)


def test_a_record_is_read_as_one_version_while_others_replace_it_and_not_for_ever(tmp_path: Path) -> None:
    store = BusyStore(tmp_path)
    save_manifest(store, manifest("1"), over=StoredManifest(), whole=True)
    store.times = 2
    assert load_manifest(store, "digits").manifest == manifest("of 2")
    store.times = 99
    with pytest.raises(PreconditionFailed):
        load_manifest(store, "digits")
