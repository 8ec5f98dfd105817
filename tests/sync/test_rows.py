"""Rows come back in the order of keys, however many they are and in whatever order they came."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import StoreFull
from spillway.stores.entries import put_lines
from spillway.stores.local import LocalStore
from spillway.sync import rows
from spillway.sync.rows import Rows
from spillway.testing.disks import filled, small_disk


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "RUN_ROWS", 10)
    monkeypatch.setattr(rows, "_BLOCK_ROWS", 3)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 100, 257])
@pytest.mark.parametrize("order", ["sorted", "reversed", "shuffled"])
def test_rows_are_sorted_also_beyond_what_memory_holds(count: int, order: str) -> None:
    expected = [(f"{number:05}", number, None if number % 3 else "x") for number in range(count)]
    given_rows = list(expected)
    if order == "reversed":
        given_rows.reverse()
    elif order == "shuffled":
        random.Random(count).shuffle(given_rows)
    whole = Rows(given_rows)
    one_by_one = Rows()
    for row in given_rows:
        one_by_one.add(row)
    for sorted_rows in (whole, one_by_one):
        assert len(sorted_rows) == count
        assert list(sorted_rows) == expected
        assert list(sorted_rows) == expected, "a second time"


@given(st.lists(st.text(max_size=3), max_size=60))
def test_rows_of_equal_keys_are_all_kept(keys: list[str]) -> None:
    assert [row[0] for row in Rows((key, "x") for key in keys)] == sorted(keys)


def test_two_readers_of_the_same_rows_do_not_disturb_each_other() -> None:
    rows_ = Rows((f"{number:03}",) for number in range(50))
    one, other = iter(rows_), iter(rows_)
    assert [next(one), next(other), next(one), next(other)] == [("000",), ("000",), ("001",), ("001",)]
    assert len([*one]) == len([*other]) == 48


def test_a_temporary_folder_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreFull, match=r"the temporary folder .*gone is full"):
        Rows((f"{number}",) for number in range(11))


@pytest.mark.parametrize("write", ["rows", "lines"])
def test_a_full_temporary_folder_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, write: str) -> None:
    store = LocalStore(tmp_path / "store")
    (tmp_path / "store").mkdir()
    with small_disk(tmp_path / "full", "size=64k") as folder, filled(folder):
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with pytest.raises(StoreFull, match=r"the temporary folder .*full is full: .*No space left"):
            if write == "rows":
                Rows((f"{number}",) for number in range(11))
            else:
                put_lines(store, "list.gz", [["a", 1]])
    assert list(store.list()) == []
