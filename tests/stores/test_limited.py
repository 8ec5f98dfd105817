"""A store and a registry that are read at a limited pace: the same contracts, and every byte is asked for first."""

from __future__ import annotations

from pathlib import Path

import pytest

from spillway.registries.digest import digest_of
from spillway.registries.layout import LayoutRegistry
from spillway.registries.limited import LimitedRegistry
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.limited import LimitedStore
from spillway.stores.local import LocalStore
from spillway.testing.contracts import ObjectStoreContract
from spillway.testing.images import put_image


@pytest.fixture
def taken() -> list[int]:
    return []


@pytest.fixture
def store(tmp_path: Path, taken: list[int]) -> ObjectStore:
    (tmp_path / "root").mkdir()
    return LimitedStore(LocalStore(tmp_path / "root"), taken.append)


class TestContract(ObjectStoreContract):
    pass


def test_every_byte_that_is_read_is_asked_for_and_none_that_is_not(store: ObjectStore, taken: list[int]) -> None:
    store.put("a", b"12345", size_bytes=5)
    assert (next(iter(store.list())).key, store.head("b"), taken) == ("a", None, [])
    assert (read_all(store, "a"), sum(taken)) == (b"12345", 5)
    assert (b"".join(store.read("a", start=1, length=2)), sum(taken)) == (b"23", 7)
    assert (b"".join(store.open("a").chunks), sum(taken)) == (b"12345", 12)


def test_the_blobs_of_a_registry_are_asked_for_and_its_manifests_are_not(tmp_path: Path, taken: list[int]) -> None:
    registry = LimitedRegistry(LayoutRegistry(tmp_path), taken.append)
    manifest = put_image(registry, "train", "v1", layer=b"12345")
    assert registry.manifest("train", "v1") == manifest
    assert taken == []
    assert b"".join(registry.read_blob("train", digest_of(b"12345"))) == b"12345"
    assert sum(taken) == 5
