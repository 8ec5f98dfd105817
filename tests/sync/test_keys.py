"""Keys arrive exactly as they are, or are refused by name."""

from __future__ import annotations

import unicodedata

import pytest

from spillway.sync.manifest import load_entries, load_record

COMPOSED = unicodedata.normalize("NFC", "Größe/é")
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)
LONGEST = "digits/" + ("ü" * 100 + "/") * 5 + "x" * 12
UGLY = ("a//b", "/a", "./a", "a/../b", "a/.", "//")
"""Keys that S3 of AWS keeps and a server on a file system cleans up."""


def test_names_that_look_alike_stay_apart(s3_ends) -> None:
    contents = {COMPOSED: b"1", DECOMPOSED: b"2", "x": b"3", "x ": b"4", " x": b"5", "X": b"6", "x\u200b": b"7"}
    assert COMPOSED != DECOMPOSED
    s3_ends.fill(contents)
    assert s3_ends.sync().ok
    assert s3_ends.at_cloud() == contents
    again = s3_ends.sync()
    assert (again.objects_copied, again.objects_unchanged, again.listed_destination) == (0, 7, False)
    assert s3_ends.sync(verify=True).objects_unchanged == 7


def test_a_key_of_1024_bytes_arrives_and_stays_known(s3_ends) -> None:
    assert len(LONGEST.encode()) == 1024
    s3_ends.home.store.put(LONGEST, b"1", size_bytes=1)
    assert s3_ends.sync().ok
    record = load_record(s3_ends.cloud.store, "digits").record
    assert [key for key, _ in load_entries(s3_ends.cloud.store, record)] == [LONGEST]
    assert s3_ends.sync().objects_unchanged == 1


@pytest.mark.parametrize("key", UGLY)
def test_a_key_that_the_target_would_clean_up_is_refused_by_name_where_the_listing_of_the_source_is_made_up(
    ends, key: str
) -> None:
    """No server at hand keeps such keys."""
    ends.fill({"good": b"1"})
    info = ends.home.store.head("digits/good")
    real = ends.home.list

    def listing(prefix: str = ""):
        yield from real(prefix)
        yield type(info)(key=f"digits/{key}", size_bytes=1, etag="e")

    ends.home.list = listing
    ends.home.head = lambda wanted: ends.home.store.head("digits/good")
    ends.home.open = lambda wanted: ends.home.store.open("digits/good")
    ends.home.read = lambda wanted, **options: ends.home.store.read("digits/good")
    report = ends.sync()
    assert ends.fates() == {"good": "copied", key: "refused"}
    assert repr(f"digits/{key}")[1:-1] in report.failures[0]
    assert set(ends.at_cloud()) == {"good"}
