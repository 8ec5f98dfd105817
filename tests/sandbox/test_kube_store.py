"""The store and its journal: nothing acknowledged is lost, nothing is told twice."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.sandbox.kube import store as store_module
from spillway.sandbox.kube.journal import Journal
from spillway.sandbox.kube.resources import CONFIG_MAPS, Object, namespace_of
from spillway.sandbox.kube.status import ApiError
from spillway.sandbox.kube.store import FIRST_REVISION, Store


def _map(name: str, value: str = "") -> Object:
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}}


def _contents(store: Store) -> dict[str, str]:
    return {obj["metadata"]["name"]: obj["data"]["v"] for obj in store.list(CONFIG_MAPS)}


_journals: list[Journal] = []


@pytest.fixture(autouse=True)
def _close_journals() -> Iterator[None]:
    yield
    while _journals:
        _journals.pop().close()


def _open(path: Path) -> Store:
    _journals.append(Journal(path))
    return Store(_journals[-1])


def test_a_store_opened_again_has_every_object_and_goes_on_counting(tmp_path: Path) -> None:
    store = _open(tmp_path / "journal")
    store.put(CONFIG_MAPS, _map("a", "1"))
    gone = store.put(CONFIG_MAPS, _map("b"))
    store.put(CONFIG_MAPS, _map("a", "2"))
    store.remove(CONFIG_MAPS, gone)

    again = _open(tmp_path / "journal")

    assert _contents(again) == {"a": "2"}
    assert again.revision == FIRST_REVISION + 4
    assert again.put(CONFIG_MAPS, _map("c"))["metadata"]["resourceVersion"] == str(FIRST_REVISION + 5)


def test_a_watcher_goes_on_after_a_restart_where_it_was(tmp_path: Path) -> None:
    store = _open(tmp_path / "journal")
    store.put(CONFIG_MAPS, _map("a", "1"))
    seen = store.revision
    gone = store.put(CONFIG_MAPS, _map("a", "2"))
    store.remove(CONFIG_MAPS, gone)

    changes = _open(tmp_path / "journal").changes_after(seen)

    assert [(change.kind, change.obj["data"]["v"]) for change in changes] == [("MODIFIED", "2"), ("DELETED", "2")]
    assert [change.previous and change.previous["data"]["v"] for change in changes] == ["1", "2"]


def test_a_last_line_that_was_cut_by_a_kill_is_dropped_and_the_journal_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    store = _open(path)
    store.put(CONFIG_MAPS, _map("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])

    again = _open(path)
    again.put(CONFIG_MAPS, _map("b"))

    assert _contents(_open(path)) == {"a": "", "b": ""}


def test_a_write_for_which_the_disk_has_no_room_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    store = _open(path)
    store.put(CONFIG_MAPS, _map("a"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(OSError, match=r"journal|too large"):
            store.put(CONFIG_MAPS, _map("b"))
        assert _contents(store) == {"a": ""}
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    store.put(CONFIG_MAPS, _map("c"))
    assert _contents(_open(path)) == _contents(store) == {"a": "", "c": ""}


def test_compaction_keeps_the_objects_and_forgets_the_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_COMPACT_AT", 20)
    path = tmp_path / "journal"
    store = _open(path)
    for number in range(100):
        store.put(CONFIG_MAPS, _map("a", str(number)))

    again = _open(path)

    assert len(path.read_text().splitlines()) < 30
    assert (_contents(again), again.revision) == ({"a": "99"}, FIRST_REVISION + 100)
    with pytest.raises(ApiError) as refused:
        again.changes_after(FIRST_REVISION + 1)
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_changes_before_the_first_one_known_are_expired(tmp_path: Path) -> None:
    store = _open(tmp_path / "journal")

    assert list(store.changes_after(FIRST_REVISION)) == []
    with pytest.raises(ApiError, match="too old resource version"):
        store.changes_after(FIRST_REVISION - 1)


def test_the_journal_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    _open(tmp_path / "journal")

    assert (tmp_path / "journal").stat().st_mode & 0o777 == 0o600


_WRITES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "remove"]), st.integers(0, 9)), max_size=40
)


@given(writes=_WRITES, cut=st.integers(0, 40))
def test_whatever_was_written_a_reader_of_the_changes_ends_where_the_store_does(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, str, int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("store") / "journal"
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
