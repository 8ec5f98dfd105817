"""A sync copies what is new or changed, verified, and leaves a record that says so."""

from __future__ import annotations

import hashlib

import pytest

from spillway.errors import (
    AccessDenied,
    DeletesRefused,
    DigestMismatch,
    KeyRefused,
    Missing,
    PreconditionFailed,
    RequestRefused,
    SpillwayError,
    StoreFull,
    Unreachable,
)
from spillway.sync.manifest import verified_copies
from spillway.sync.report import ObjectFate, summary

CONTENTS = {"a": b"one", "b/c": b"two", "b/d.npy": b"\0" * 5000, "empty": b""}


def changed(ends) -> dict[str, str]:
    return {key: fate for key, fate in ends.fates().items() if fate != "unchanged"}


def test_the_first_sync_copies_everything_and_the_second_copies_and_reads_nothing(ends) -> None:
    ends.fill(CONTENTS)
    first = ends.sync()
    assert (first.ok, first.objects_copied, first.bytes_copied) == (True, 4, 5006)
    assert ends.at_cloud() == CONTENTS

    second = ends.sync()
    assert (second.ok, second.objects_copied, second.objects_unchanged, second.bytes_copied) == (True, 0, 4, 0)
    assert ends.home.calls == {"list": 1}
    assert ends.cloud.calls == {"read": 1, "head": 4}, "only the record is read, and some of its objects are looked at"
    assert not second.listed_destination


def test_only_the_prefix_of_the_dataset_travels(ends) -> None:
    ends.fill(CONTENTS)
    ends.home.store.put("secret/x", b"core", size_bytes=4)
    ends.home.store.put("digits2/x", b"other", size_bytes=5)
    ends.sync()
    assert ends.at_cloud() == CONTENTS


def test_content_type_and_metadata_travel_with_the_object(ends) -> None:
    ends.home.store.put("digits/x", b"1", size_bytes=1, content_type="text/csv", metadata={"unit": "mm"})
    ends.sync()
    head = ends.cloud.store.head("digits/x")
    assert (head.content_type, head.metadata["unit"]) == ("text/csv", "mm")
    assert head.sha256 == hashlib.sha256(b"1").hexdigest()


def test_other_content_of_equal_size_is_copied(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    ends.fill({"a": b"ONE"})
    ends.sync()
    assert ends.fates() == {"a": "copied", "b/c": "unchanged", "b/d.npy": "unchanged", "empty": "unchanged"}
    assert ends.at_cloud()["a"] == b"ONE"


def test_an_object_that_somebody_changed_at_the_destination_is_repaired(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    ends.cloud.store.put("digits/a", b"bad", size_bytes=3)
    ends.cloud.store.delete(["digits/b/c"])
    assert (ends.sync().objects_copied, ends.at_cloud()) == (2, CONTENTS)


def test_equal_content_that_is_already_there_is_not_sent_again(ends) -> None:
    ends.fill(CONTENTS)
    ends.cloud.store.put("digits/a", b"one", size_bytes=3)
    report = ends.sync()
    assert ends.fates()["a"] == "unchanged"
    assert report.objects_copied == 3
    assert "digits" in verified_copies(ends.cloud.store)


def test_a_dataset_without_objects_is_missing_not_empty(ends) -> None:
    with pytest.raises(Missing, match=r"dataset 'digits' is not in .*/digits/; check the dataset's prefix"):
        ends.sync()
    assert verified_copies(ends.cloud.store) == {}


def test_a_source_that_lost_its_objects_deletes_nothing(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    ends.home.store.delete([f"digits/{key}" for key in CONTENTS])
    with pytest.raises(DeletesRefused, match="the source lists no objects and the destination has 4"):
        ends.sync(delete=True)
    assert ends.at_cloud() == CONTENTS


def test_a_dry_run_says_the_same_as_the_run_and_changes_nothing(ends) -> None:
    ends.fill({f"{n}": b"x" for n in range(10)})
    ends.sync()
    ends.home.store.delete(["digits/0"])
    ends.fill({"1": b"y", "new": b"z"})
    before = ends.at_cloud()
    planned = ends.sync(delete=True, dry_run=True)
    intended = ends.outcomes
    assert ends.at_cloud() == before
    assert ends.cloud.calls["put"] == ends.cloud.calls["delete"] == 0
    done = ends.sync(delete=True)
    assert (planned.dry_run, done.dry_run) == (True, False)
    assert ends.outcomes == intended
    assert planned.counts == done.counts
    assert changed(ends) == {"0": "deleted", "1": "copied", "new": "copied"}
    assert "0" not in ends.at_cloud()


def test_without_delete_what_the_source_lost_stays(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    ends.home.store.delete(["digits/a"])
    ends.sync(verify=True)
    assert [o.reason for o in ends.outcomes if o.key == "digits/a"] == ["only at the destination; deleting is off"]
    assert ends.at_cloud() == CONTENTS


def test_deletes_wait_for_every_copy_to_succeed(ends) -> None:
    ends.fill({f"{n}": b"x" for n in range(10)})
    ends.sync()
    ends.home.store.delete(["digits/0"])
    ends.fill({"1": b"y"})

    def deny(method: str, key: str) -> None:
        if (method, key) == ("read", "digits/1"):
            raise SpillwayError("no reading today")

    ends.home.before = deny
    ends.sync(delete=True)
    assert changed(ends) == {"0": "failed", "1": "failed"}
    assert "0" in ends.at_cloud()


def test_one_object_that_fails_does_not_stop_the_rest_and_nothing_is_recorded(ends) -> None:
    ends.fill(CONTENTS)

    def deny(method: str, key: str) -> None:
        if (method, key) == ("read", "digits/b/c"):
            raise SpillwayError("no reading today")

    ends.home.before = deny
    report = ends.sync()
    assert ends.fates() == {"a": "copied", "b/c": "failed", "b/d.npy": "copied", "empty": "copied"}
    assert summary(report) == {
        "dataset": "digits",
        "dry_run": False,
        "objects_copied": 3,
        "objects_unchanged": 0,
        "objects_deleted": 0,
        "objects_refused": 0,
        "objects_failed": 1,
        "objects_withheld": 0,
        "objects_barred": 0,
        "bytes_copied": 5003,
        "listed_destination": True,
        "failures": ["digits/b/c: no reading today"],
    }
    assert not report.ok
    assert verified_copies(ends.cloud.store) == {}


@pytest.mark.parametrize(
    ("error", "fate"),
    [
        (KeyRefused("s3://x@cloud", "b/c", "it has an empty segment"), "refused"),
        (RequestRefused("s3://x@cloud", "PutObject", "too much metadata"), "refused"),
        (AccessDenied("s3://x@cloud", "no writing of this one", fix="grant it"), "refused"),
        (Unreachable("s3://x@cloud", "the connection was reset"), "failed"),
        (PreconditionFailed("s3://x@onprem", "b/c", "its etag is 1"), "failed"),
        (DigestMismatch("b/c", expected="1", seen="2"), "failed"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, SpillwayError) else value,
)
def test_what_the_next_sync_may_mend_has_failed_and_anything_else_is_refused(
    ends, error: SpillwayError, fate: str
) -> None:
    ends.fill({"gone": b""} | {f"{n}": b"1" for n in range(8)} | {"b/c": b"2"})
    assert ends.sync().ok
    ends.home.store.delete(["digits/gone"])
    ends.fill({"b/c": b"other"})

    def fail(method: str, key: str) -> None:
        if (method, key) == ("put", "digits/b/c"):
            raise error

    ends.cloud.before = fail
    ends.sync(delete=True)
    assert changed(ends) == {"b/c": fate, "gone": fate}, "a delete waits for the copies"


def test_an_interrupted_sync_goes_on_where_it_was(ends) -> None:
    ends.fill({f"{n:03}": b"%d" % n for n in range(40)})

    def interrupt(method: str, key: str) -> None:
        if method == "put" and ends.cloud.calls["put"] > 10:
            raise KeyboardInterrupt

    ends.cloud.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        ends.sync()
    there = len(ends.at_cloud())
    assert 0 < there < 40
    assert verified_copies(ends.cloud.store) == {}

    ends.cloud.before = lambda method, key: None
    report = ends.sync()
    assert (report.ok, report.objects_copied, report.objects_unchanged) == (True, 40 - there, there)
    assert ends.home.calls["read"] == 40 - there
    assert verified_copies(ends.cloud.store).keys() == {"digits"}


def test_a_copy_that_is_being_changed_is_not_called_whole(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    assert verified_copies(ends.cloud.store).keys() == {"digits"}
    ends.fill({"a": b"ONE", "b/c": b"TWO"})

    def look(method: str, key: str) -> None:
        if (method, key) == ("put", "digits/a"):
            assert verified_copies(ends.cloud.store) == {}
        if (method, key) == ("put", "digits/b/c"):
            raise SpillwayError("the second object is refused")

    ends.cloud.before = look
    assert not ends.sync().ok
    assert verified_copies(ends.cloud.store) == {}
    ends.cloud.before = lambda method, key: None
    assert (ends.sync().objects_copied, verified_copies(ends.cloud.store).keys()) == (1, {"digits"})


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("s3://x@cloud", "it is gone"),
        AccessDenied("s3://x@cloud", "no writing", fix="grant it"),
        StoreFull("s3://x@cloud", "no space"),
    ],
    ids=["goes away", "lets nothing in", "is full"],
)
def test_a_store_that_goes_away_lets_nothing_in_or_is_full_ends_the_sync_with_that_error(
    local_ends, error: SpillwayError
) -> None:
    local_ends.fill({f"{n:03}": b"x" for n in range(400)})

    allowed = [None] * 20

    def fail(method: str, key: str) -> None:
        if method == "put":
            try:
                allowed.pop()
            except IndexError:
                raise error from None

    local_ends.cloud.before = fail
    with pytest.raises(type(error)):
        local_ends.sync()
    assert local_ends.cloud.calls["put"] < 200, "the rest is not tried, but for what the threads have in hand"
    assert len(local_ends.at_cloud()) == 20
    local_ends.cloud.before = lambda method, key: None
    assert local_ends.sync().objects_copied == 380


def test_a_spillway_record_at_the_source_is_no_part_of_a_dataset(ends) -> None:
    ends.home.store.put("x", b"1", size_bytes=1)
    ends.home.store.put(".spillway/sync/other.json", b"{}", size_bytes=2)
    ends.sync(prefix="")
    assert [(outcome.key, outcome.fate) for outcome in ends.outcomes] == [("x", ObjectFate.COPIED)]
    again = ends.sync(prefix="", delete=True)
    assert (again.ok, again.objects_unchanged) == (True, 1)
    assert "digits" in verified_copies(ends.cloud.store)


def test_whoever_asks_for_what_changed_is_not_told_of_the_rest(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    ends.fill({"a": b"ONE"})
    report = ends.sync(tell_unchanged=False)
    assert (ends.fates(), report.objects_unchanged) == ({"a": "copied"}, len(CONTENTS) - 1)
    ends.sync(tell_unchanged=False, verify=True)
    assert ends.fates() == {}
