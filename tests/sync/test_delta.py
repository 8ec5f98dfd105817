"""The record of the last verified sync stands in for the destination only while it can be trusted."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spillway.errors import KeepsChanging
from spillway.model import KeyScope, SyncedObject, SyncRecord
from spillway.stores.base import OWN_PREFIX
from spillway.sync.listing import VERIFY_EVERY
from spillway.sync.manifest import (
    StoredRecord,
    load_entries,
    load_record,
    manifest_key,
    save_record,
    verified_copies,
    write_entries,
)

CONTENTS = {"a": b"one", "b/c": b"two", "b/d.npy": b"\0" * 5000, "empty": b""}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(source: str) -> SyncRecord:
    return SyncRecord(
        dataset="digits",
        source=source,
        scope=KeyScope(prefix="digits/"),
        whole=True,
        entries="",
        objects=0,
        size_bytes=0,
        versions="",
        verified_at=datetime.now(UTC),
    )


@pytest.mark.parametrize("source", ["another", "the same"])
def test_the_record_of_another_source_is_not_believed(ends, source: str) -> None:
    ends.fill({"a": b"ONE"})
    old = ends.cloud.store.put("digits/a", b"one", size_bytes=3)
    now = ends.home.store.head("digits/a")
    told = record(ends.home.name if source == "the same" else "s3://elsewhere@onprem")
    listed = write_entries(ends.cloud.store, told, [("digits/a", SyncedObject(3, now.etag, old.etag))])
    save_record(ends.cloud.store, listed, over=StoredRecord())
    ends.sync()
    assert ends.fates() == {"a": "copied" if source == "another" else "unchanged"}


def test_an_unreadable_record_is_replaced(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    ends.cloud.store.put(manifest_key("digits"), b"not json", size_bytes=8, metadata={"whole": "yes"})
    report = ends.sync()
    assert (report.ok, report.objects_copied) == (True, 0)
    assert load_record(ends.cloud.store, "digits").record.objects == 4


def test_two_syncs_of_one_dataset_side_by_side_both_succeed(ends) -> None:
    ends.fill(CONTENTS)
    other = type(ends)(ends.home.store, ends.cloud.store)

    def meanwhile(method: str, key: str) -> None:
        if (method, key) == ("put", manifest_key("digits")):
            ends.cloud.before = lambda method, key: None
            assert other.sync().ok

    ends.cloud.before = meanwhile
    assert ends.sync().ok
    assert verified_copies(ends.cloud.store).keys() == {"digits"}


def test_a_sync_that_another_one_overtook_with_newer_versions_starts_over(ends) -> None:
    ends.fill(CONTENTS)
    other = type(ends)(ends.home.store, ends.cloud.store)

    def meanwhile(method: str, key: str) -> None:
        if (method, key) == ("put", manifest_key("digits")):
            ends.cloud.before = lambda method, key: None
            ends.fill({"a": b"ONE"})
            assert other.sync().ok

    ends.cloud.before = meanwhile
    assert ends.sync().ok
    assert ends.at_cloud() == CONTENTS | {"a": b"ONE"}
    assert verified_copies(ends.cloud.store).keys() == {"digits"}


def test_a_sync_that_is_overtaken_again_and_again_may_be_tried_later(ends) -> None:
    ends.fill(CONTENTS)
    other = type(ends)(ends.home.store, ends.cloud.store)
    begun: list[str] = []

    def meanwhile(method: str, key: str) -> None:
        if method == "list":
            begun.append(key)
        elif (method, key) == ("put", manifest_key("digits")) and begun:
            begun.clear()
            ends.fill({"a": b"newer than " + ends.at_cloud()["a"]})
            assert other.sync().ok

    ends.cloud.before = meanwhile
    with pytest.raises(KeepsChanging, match="dataset 'digits' went on changing while it was synced 2 times") as lost:
        ends.sync()
    assert lost.value.retry_helps
    ends.cloud.before = lambda method, key: None
    assert ends.sync().ok


def entries_key(ends) -> str:
    return load_record(ends.cloud.store, "digits").record.entries


@pytest.mark.parametrize("fault", ["lost", "cut off", "not a list", "another list"])
def test_a_damaged_list_of_the_copy_is_noticed_and_both_sides_are_compared(ends, fault: str) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    ends.fill({"a": b"ONE"})
    store, key = ends.cloud.store, entries_key(ends)
    whole = b"".join(store.read(key))
    other = write_entries(store, record("x"), [("digits/a", SyncedObject(1, "1", "1"))])
    bodies = {"cut off": whole[:-9], "not a list": b"[]", "another list": b"".join(store.read(other.entries))}
    store.delete([key])
    if fault in bodies:
        store.put(key, bodies[fault], size_bytes=len(bodies[fault]))
    report = ends.sync()
    assert (report.ok, report.objects_copied, report.listed_destination) == (True, 1, True)
    again = ends.sync()
    assert (again.objects_unchanged, again.listed_destination) == (4, False)
    assert len(list(load_entries(store, load_record(store, "digits").record))) == 4


def test_a_record_of_the_layout_of_before_is_replaced_and_nothing_is_copied_again(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    body = b'{"dataset":"digits","objects":{},"prefix":"digits/","source":"s3://datasets@onprem"}'
    ends.cloud.store.put(manifest_key("digits"), body, size_bytes=len(body), metadata={"whole": "yes"})
    assert verified_copies(ends.cloud.store) == {}
    assert (ends.sync().objects_copied, verified_copies(ends.cloud.store).keys()) == (0, {"digits"})


@pytest.mark.parametrize("change", ["none", "one more", "one less", "another version", "another name"])
def test_the_source_is_known_to_be_unchanged_without_the_list_of_the_copy(ends, change: str) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    before = load_record(ends.cloud.store, "digits").record
    if change in ("one less", "another name"):
        ends.home.store.delete(["digits/a"])
    ends.fill({"one more": {"c": b""}, "another version": {"a": b"ONE"}, "another name": {"A": b"one"}}.get(change, {}))
    report = ends.sync()
    assert (report.ok, report.listed_destination) == (True, False)
    assert ends.cloud.calls["read"] == (1 if change == "none" else 2), "the record, and what it names"
    assert (load_record(ends.cloud.store, "digits").record == before) == (change == "none")
    assert ends.sync(verify=True).objects_copied == 0, "all is there"


def test_a_record_that_names_no_objects_to_look_at_is_written_anew(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    stored = load_record(ends.cloud.store, "digits")
    save_record(ends.cloud.store, replace(stored.record, sample={}), over=stored)
    assert ends.sync().listed_destination
    assert not ends.sync().listed_destination


def test_a_small_change_reads_and_lists_the_source_only(ends) -> None:
    ends.fill({f"{n:02}": b"x" for n in range(40)})
    ends.sync()
    ends.fill({"07": b"y", "new": b"z"})
    ends.home.store.delete(["digits/09"])
    report = ends.sync()
    assert (report.objects_copied, report.objects_unchanged, report.listed_destination) == (2, 39, False)
    assert ends.cloud.calls["list"] == 1, "of the lists of former copies, to remove old ones"
    assert ends.home.calls["read"] == 2
    assert ends.sync(verify=True).objects_copied == 0, "the record was right"


def test_a_destination_that_was_emptied_is_noticed_although_the_record_says_otherwise(ends) -> None:
    ends.fill({f"{n:02}": b"x" for n in range(40)})
    ends.sync()
    ends.cloud.store.delete([f"digits/{n:02}" for n in range(40)])
    report = ends.sync()
    assert (report.objects_copied, report.listed_destination) == (40, True)


def test_what_others_change_at_the_destination_is_found_by_a_full_verification_on_demand_and_by_and_by(ends) -> None:
    ends.fill({f"{n:03}": b"x" for n in range(300)})
    ends.sync(now=NOW)

    def break_one() -> None:
        ends.cloud.store.put("digits/150", b"bad", size_bytes=3)

    break_one()
    assert ends.sync(now=NOW, verify=True).objects_copied == 1
    break_one()
    late = ends.sync(now=NOW + VERIFY_EVERY)
    assert (late.objects_copied, late.listed_destination) == (1, True)
    assert not ends.sync(now=NOW + VERIFY_EVERY + timedelta(days=1)).listed_destination


def test_a_verification_that_finds_nothing_is_recorded_too(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync(now=NOW)
    listed = entries_key(ends)
    assert ends.sync(now=NOW + VERIFY_EVERY).listed_destination
    assert not ends.sync(now=NOW + VERIFY_EVERY + timedelta(days=1)).listed_destination
    assert entries_key(ends) == listed, "the list is not written anew"


def test_a_record_from_the_future_is_of_a_wrong_clock_and_both_sides_are_compared(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync(now=NOW + timedelta(days=300))
    assert ends.sync(now=NOW).listed_destination


def test_another_prefix_or_other_rules_make_the_record_a_foreign_one(ends) -> None:
    ends.fill(CONTENTS)
    ends.sync()
    assert ends.sync(exclude=("empty",)).listed_destination
    assert ends.sync(prefix="digits/b/").listed_destination
    assert {key for key, _ in load_entries(ends.cloud.store, load_record(ends.cloud.store, "digits").record)} == {
        "digits/b/c",
        "digits/b/d.npy",
    }


def test_lists_of_former_copies_do_not_pile_up_for_ever(local_ends, tmp_path) -> None:
    local_ends.fill({"a": b"1"})
    local_ends.sync()
    (first,) = (tmp_path / "cloud" / OWN_PREFIX / "entries" / "digits").iterdir()
    os.utime(first, (0, 0))
    local_ends.fill({"a": b"2"})
    local_ends.sync()
    (second,) = (tmp_path / "cloud" / OWN_PREFIX / "entries" / "digits").iterdir()
    assert second != first


def test_a_sync_that_agrees_with_an_older_record_leaves_the_list_which_that_one_names(local_ends, tmp_path) -> None:
    local_ends.fill(CONTENTS)
    other = type(local_ends)(local_ends.home.store, local_ends.cloud.store)

    def meanwhile(method: str, key: str) -> None:
        if (method, key) == ("put", manifest_key("digits")):
            local_ends.cloud.before = lambda method, key: None
            assert other.sync().ok
            os.utime(tmp_path / "cloud" / entries_key(other), (0, 0))

    local_ends.cloud.before = meanwhile
    assert local_ends.sync().ok
    again = local_ends.sync()
    assert (again.objects_unchanged, again.listed_destination) == (len(CONTENTS), False)


def test_what_a_sync_that_fell_short_has_verified_is_not_asked_for_again(s3_ends, local_ends) -> None:
    ends = type(s3_ends)(s3_ends.home.store, local_ends.cloud.store)
    ends.fill({f"{n}": b"x" for n in range(20)} | {"folder/": b""})
    assert ends.sync().failures
    before = load_record(ends.cloud.store, "digits").record
    assert (before.whole, before.entries, verified_copies(ends.cloud.store)) == (False, "", {})
    report = ends.sync()
    assert (report.objects_unchanged, report.objects_copied, report.count("refused")) == (20, 0, 1)
    assert {o.reason for o in ends.outcomes if not o.failed} == {"unchanged on both sides since the last verified sync"}
    assert ends.home.calls["head"] <= 1, "of the refused object only"
    assert load_record(ends.cloud.store, "digits").record == before, "nothing new was learned"
    ends.home.store.delete(["digits/folder/"])
    assert ends.sync().ok
    assert load_record(ends.cloud.store, "digits").record.known is None


def test_a_sync_that_another_one_overtook_deletes_nothing(ends) -> None:
    ends.fill({f"{n}": b"x" for n in range(10)})
    ends.sync()
    ends.home.store.delete(["digits/3"])
    ends.fill({"4": b"y"})
    other = type(ends)(ends.home.store, ends.cloud.store)

    def meanwhile(method: str, key: str) -> None:
        if (method, key) == ("put", "digits/4"):
            ends.cloud.before = lambda method, key: None
            ends.fill({"3": b"it is back", "5": b"z"})
            assert other.sync().ok

    ends.cloud.before = meanwhile
    assert ends.sync(delete=True).ok
    assert ends.cloud.calls["delete"] == 0
    assert ends.at_cloud()["3"] == b"it is back"
