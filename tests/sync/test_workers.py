"""Which keys are folders of others."""

from __future__ import annotations

import pytest

from spillway.sync.workers import folders_among, folders_of


@pytest.mark.parametrize(
    ("key", "folders"),
    [
        ("d", []),
        ("a/b/c", ["a", "a/", "a/b", "a/b/"]),
        ("d/", ["d"]),
        ("/x", ["", "/"]),
        ("a//b", ["a", "a/", "a/", "a//"]),
    ],
)
def test_the_folders_of_a_key(key: str, folders: list[str]) -> None:
    assert list(folders_of(key)) == folders


def test_keys_that_are_folders_of_others_are_found_also_where_other_keys_lie_between() -> None:
    keys = ["d", "d-x", "d-x/y", "d.z", "d/e", "d/e!", "d/e/f", "d0", "e", "f/", "f/g"]
    assert folders_among(sorted(keys)) == {"d", "d-x", "d/e", "f/"}
