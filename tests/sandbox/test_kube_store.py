"""The store: nothing acknowledged is lost, nothing is told twice."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.sandbox.kube import store as store_module
from spillway.sandbox.kube.resources import CONFIG_MAPS, Object, namespace_of
from spillway.sandbox.kube.status import ApiError
from spillway.sandbox.kube.store import Store


def _map(name: str, value: str = "") -> Object:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}}


def _contents(store: Store) -> dict[str, str]:
    return {obj["metadata"]["name"]: obj["data"]["v"] for obj in store.list(CONFIG_MAPS)}


_opened: list[Store] = []


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def _open(path: Path) -> Store:
    _opened.append(Store(path))
    return _opened[-1]


def test_a_store_opened_again_has_every_object_and_goes_on_counting(tmp_path: Path) -> None:
    store = _open(tmp_path / "objects")
    store.put(CONFIG_MAPS, _map("a", "1"))
    gone = store.put(CONFIG_MAPS, _map("b"))
    store.put(CONFIG_MAPS, _map("a", "2"))
    store.remove(CONFIG_MAPS, gone)

    again = _open(tmp_path / "objects")

    assert _contents(again) == {"a": "2"}
    assert again.revision == 4
    assert again.put(CONFIG_MAPS, _map("c"))["metadata"]["resourceVersion"] == str(5)


def test_a_watcher_of_before_a_restart_is_told_to_list_again(tmp_path: Path) -> None:
    store = _open(tmp_path / "objects")
    store.put(CONFIG_MAPS, _map("a", "1"))
    seen = store.revision
    store.put(CONFIG_MAPS, _map("a", "2"))

    again = _open(tmp_path / "objects")

    assert list(again.changes_after(again.revision)) == []
    with pytest.raises(ApiError) as refused:
        again.changes_after(seen)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_a_watcher_of_a_store_that_has_counted_further_is_told_to_list_again(tmp_path: Path) -> None:
    store = _open(tmp_path / "objects")
    store.put(CONFIG_MAPS, _map("a"))

    with pytest.raises(ApiError) as refused:
        store.changes_after(store.revision + 1)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_a_write_for_which_the_disk_has_no_room_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "objects"
    store = _open(path)
    store.put(CONFIG_MAPS, _map("a"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("objects-wal").stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(sqlite3.OperationalError):
            store.put(CONFIG_MAPS, _map("b"))
        assert _contents(store) == {"a": ""}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    store.put(CONFIG_MAPS, _map("c"))
    assert _contents(_open(path)) == _contents(store) == {"a": "", "c": ""}


def test_the_history_is_bounded_and_a_watcher_that_fell_behind_lists_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "HISTORY", 3)
    store = _open(tmp_path / "objects")
    for number in range(5):
        store.put(CONFIG_MAPS, _map("a", str(number)))

    assert [change.obj["data"]["v"] for change in store.changes_after(2)] == ["2", "3", "4"]
    with pytest.raises(ApiError, match="too old resource version"):
        store.changes_after(1)


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    _open(tmp_path / "objects")

    assert (tmp_path / "objects").stat().st_mode & 0o777 == 0o600


_WRITES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove"]), st.integers(0, 9)), max_size=40
)


@given(writes=_WRITES, cut=st.integers(0, 40))
def test_whatever_was_written_a_reader_of_the_changes_ends_where_the_store_does(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, str, int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "objects"
    store = _open(path)
    replica: dict[str, str] = {}
    position = store.revision
    for count, (name, action, value) in enumerate(writes):
        found = store.find(CONFIG_MAPS, "default", name)
        if action == "put":
            store.put(CONFIG_MAPS, _map(name, str(value)))
        elif found is not None:
            store.remove(CONFIG_MAPS, found)
        if count == cut:
            store = _open(path)
            replica, position = _contents(store), store.revision
        if count % 3 == 0:
            position = _follow(store, position, replica)
    _follow(store, position, replica)

    assert replica == _contents(store) == _contents(_open(path))


def _follow(store: Store, position: int, replica: dict[str, str]) -> int:
    for change in store.changes_after(position):
        assert namespace_of(change.obj) == "default"
        name = change.obj["metadata"]["name"]
        assert (change.kind == "ADDED") is (name not in replica)
        if change.kind == "DELETED":
            del replica[name]
        else:
            replica[name] = change.obj["data"]["v"]
        position = change.revision
    return position
