"""Patterns say what belongs to a dataset, in the same way at both ends."""

from __future__ import annotations

import pytest

from spillway.errors import Missing
from spillway.model import KeyScope
from spillway.stores.base import read_all


def hold(ends, keys: set[str]) -> None:
    """Objects that only the destination has."""
    for key in keys:
        ends.cloud.store.put(f"digits/{key}", b"here", size_bytes=4)


def test_what_is_excluded_is_neither_copied_nor_deleted(ends) -> None:
    ends.fill({"keep/a": b"1", "tmp/b": b"2"})
    hold(ends, {"tmp/x", "old/y"})
    report = ends.sync(exclude=("tmp/*",), delete=True, delete_share_max=1.0)
    assert ends.fates() == {"keep/a": "copied", "old/y": "deleted"}
    assert report.ok
    assert set(ends.at_cloud()) == {"keep/a", "tmp/x"}


@pytest.mark.parametrize(
    ("include", "exclude", "inside"),
    [
        ((), (), {"a.npy", "a b.npy", "[x].npy", "sub/c.npy", "c.txt", "C.NPY"}),
        (("*.npy",), (), {"a.npy", "a b.npy", "[x].npy", "sub/c.npy"}),
        (("*.npy",), ("sub/*",), {"a.npy", "a b.npy", "[x].npy"}),
        (("* *", "[[]x].npy"), (), {"a b.npy", "[x].npy"}),
        (("sub/?.npy", "*.txt"), ("c.*",), {"sub/c.npy"}),
    ],
    ids=["everything", "include", "both", "spaces and brackets", "exclude counts more than include"],
)
def test_rules_mean_the_same_at_both_ends(
    ends, include: tuple[str, ...], exclude: tuple[str, ...], inside: set[str]
) -> None:
    keys = {"a.npy", "a b.npy", "[x].npy", "sub/c.npy", "c.txt", "C.NPY"}
    hold(ends, keys)
    ends.fill({"zz.npy": b"1", "sub/z.npy": b"1", "z z": b"1", "z.txt": b"1"})
    ends.sync(include=include, exclude=exclude, delete=True, delete_share_max=1.0)
    assert {key for key, fate in ends.fates().items() if fate == "deleted"} == inside
    scope = KeyScope(prefix="digits/", include=include, exclude=exclude)
    assert {key for key in keys if scope.holds(f"digits/{key}")} == inside
    assert keys - inside <= set(ends.at_cloud())


def test_rules_that_leave_nothing_of_the_source_are_told_and_delete_nothing(local_ends) -> None:
    local_ends.fill({"a": b"1"})
    with pytest.raises(Missing, match=r"dataset 'digits' is not in .*check the dataset's prefix and rules"):
        local_ends.sync(include=("*.npy",), delete=True)


@pytest.mark.parametrize("prefix", ["digits", "digits/"])
def test_a_prefix_is_a_folder_only_with_its_slash(ends, prefix: str) -> None:
    ends.fill({"a": b"1"})
    ends.home.store.put("digits2/b", b"2", size_bytes=1)
    ends.sync(prefix=prefix)
    expected = {"digits/a", "digits2/b"} if prefix == "digits" else {"digits/a"}
    stored = {entry.key for entry in ends.cloud.store.list() if not entry.key.startswith(".")}
    assert stored == expected
    assert read_all(ends.cloud.store, "digits/a") == b"1"
