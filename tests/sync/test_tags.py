"""Objects whose tags decide whether they may leave: asked for before a copy, and again when copies are verified."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from spillway.codec import encode
from spillway.errors import AccessDenied, DeletesRefused
from spillway.model import KeyScope
from spillway.stores.base import read_all
from spillway.sync.leaving import TagRules
from spillway.sync.manifest import verified_copies
from spillway.sync.report import ObjectFate
from spillway.sync.shares import copy_share, divide, merge
from spillway.sync.work import Route

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CANARY = "canary-8c2e"
RULES = TagRules(
    decide=lambda key: key.startswith("digits/open/"), allow=lambda key, tags: tags.get("release") == "cleared"
)
SIX = {f"open/{name}": name.encode() for name in "abcdef"}

Tag = Callable[..., None]


@pytest.fixture
def six(s3_ends, tag: Tag) -> None:
    """Six objects that may leave, and have been copied."""
    s3_ends.fill(SIX)
    for key in SIX:
        tag(key, release="cleared")
    assert s3_ends.sync(tag_rules=RULES, now=NOW).objects_copied == 6


def everything_at_cloud(ends) -> str:
    stored = [(entry.key, read_all(ends.cloud.store, entry.key)) for entry in ends.cloud.store.list()]
    return str([(key, gzip.decompress(body) if key.endswith(".gz") else body) for key, body in stored])


def test_only_what_carries_the_tag_leaves_and_the_rest_is_counted_and_named_nowhere(
    s3_ends, tag: Tag, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="spillway")
    s3_ends.fill({"open/a": b"1", f"open/{CANARY}": b"2", f"open/{CANARY}-too": b"3", "plain": b"4"})
    tag("open/a", release="cleared", other="x")
    tag(f"open/{CANARY}", release="Cleared")
    reports = [s3_ends.sync(tag_rules=RULES, dry_run=True, now=NOW)]
    assert (s3_ends.fates(), s3_ends.at_cloud()) == ({"open/a": "copied", "plain": "copied"}, {})
    for asked in (3, 2):
        reports.append(s3_ends.sync(tag_rules=RULES, now=NOW))
        assert (s3_ends.home.calls["tags"], s3_ends.at_cloud()) == (asked, {"open/a": b"1", "plain": b"4"})
    assert [(report.objects_withheld, report.objects_barred, report.ok) for report in reports] == [(2, 0, True)] * 3
    assert [report.listed_destination for report in reports] == [True, True, False]
    assert CANARY not in str([encode(report) for report in reports]) + caplog.text + everything_at_cloud(s3_ends)


def test_a_dataset_without_such_rules_asks_for_no_tags(s3_ends) -> None:
    s3_ends.fill(SIX)
    for verify in (False, True):
        assert s3_ends.sync(verify=verify).ok
        assert s3_ends.home.calls["tags"] == 0


@pytest.mark.usefixtures("six")
def test_a_tag_that_is_taken_from_a_copied_object_is_found_where_both_sides_are_compared(s3_ends, tag: Tag) -> None:
    tag("open/a", release="no")
    unseen = s3_ends.sync(tag_rules=RULES, now=NOW)
    assert (unseen.ok, unseen.listed_destination, s3_ends.home.calls["tags"]) == (True, False, 0)

    for wish in ({"verify": True}, {}):
        found = s3_ends.sync(tag_rules=RULES, now=NOW, **wish)
        assert (found.ok, found.objects_barred, found.objects_unchanged) == (False, 1, 5)
        assert found.failures[0].startswith(
            "digits/open/a: may not leave: its tags do not say that it may leave; a copy"
        )
        assert s3_ends.at_cloud() == SIX, "no delete was asked for"
        assert verified_copies(s3_ends.cloud.store) == {}, "its record is not believed until it is settled"

    gone = s3_ends.sync(tag_rules=RULES, now=NOW, delete=True)
    assert (gone.ok, s3_ends.fates()["open/a"], "open/a" in s3_ends.at_cloud()) == (True, "deleted", False)
    after = s3_ends.sync(tag_rules=RULES, now=NOW)
    assert (after.ok, after.objects_withheld, after.objects_unchanged) == (True, 1, 5)
    assert verified_copies(s3_ends.cloud.store).keys() == {"digits"}


@pytest.mark.usefixtures("six")
def test_a_tag_that_is_taken_away_is_found_at_the_latest_when_the_record_is_a_week_old(s3_ends, tag: Tag) -> None:
    tag("open/b")
    later = NOW.replace(day=8)
    assert s3_ends.sync(tag_rules=RULES, now=later).objects_barred == 1


@pytest.mark.usefixtures("six")
def test_a_changed_object_whose_tag_is_gone_is_named_while_its_older_copy_is_there(s3_ends) -> None:
    s3_ends.fill({"open/a": b"new, and nobody has cleared it"})
    report = s3_ends.sync(tag_rules=RULES, now=NOW)
    assert (report.objects_barred, s3_ends.fates(), s3_ends.at_cloud()) == (
        1,
        s3_ends.fates() | {"open/a": "refused"},
        SIX,
    )


@pytest.mark.usefixtures("six")
def test_copies_of_what_may_not_leave_any_more_are_deleted_within_the_guard_only(s3_ends, tag: Tag) -> None:
    for key in ("open/a", "open/b"):
        tag(key)
    with pytest.raises(DeletesRefused, match="would delete 2 of 6"):
        s3_ends.sync(tag_rules=RULES, now=NOW, delete=True)
    assert s3_ends.at_cloud() == SIX


@pytest.mark.usefixtures("six")
def test_objects_whose_tags_nobody_lets_be_read_are_refused_by_name_and_their_copies_stay(s3_ends) -> None:
    """The refusal is raised in the store: SeaweedFS lets whoever reads an object read its tags."""

    def deny(method: str, key: str) -> None:
        if method == "tags" and key in ("digits/open/a", "digits/open/new"):
            raise AccessDenied("s3://b@onprem", "GetObjectTagging: AccessDenied", fix="allow s3:GetObjectTagging")

    s3_ends.fill({"open/new": b"new"})
    s3_ends.home.before = deny
    for wish in ({}, {"verify": True}, {"delete": True}):
        report = s3_ends.sync(tag_rules=RULES, now=NOW, **wish)
        refused = [key for key, fate in s3_ends.fates().items() if fate == "refused"]
        assert refused == (["open/a", "open/new"] if wish else ["open/new"])
        assert report.objects_barred == len(refused)
        assert "its tags cannot be read, so it counts as core: " in report.failures[-1]
        assert s3_ends.at_cloud() == SIX


def test_a_folder_keeps_no_tags_so_nothing_that_they_decide_of_leaves_it(local_ends) -> None:
    local_ends.fill({"open/a": b"1", "plain": b"2"})
    report = local_ends.sync(tag_rules=RULES)
    assert (local_ends.fates(), report.objects_barred) == ({"open/a": "refused", "plain": "copied"}, 1)
    assert "a folder keeps none" in report.failures[0]


@pytest.mark.parametrize("tags", [{"release": "cleared"}, {}], ids=["cleared", "not cleared"])
def test_a_version_that_came_after_the_plan_leaves_only_with_its_own_tags(
    s3_ends, tag: Tag, tags: dict[str, str]
) -> None:
    s3_ends.fill({"open/a": b"old"})
    tag("open/a", release="cleared")

    def replace(method: str, key: str) -> None:
        if method == "read":
            s3_ends.home.before = lambda method, key: None
            s3_ends.fill({"open/a": b"new"})
            tag("open/a", **tags)

    s3_ends.home.before = replace
    report = s3_ends.sync(tag_rules=RULES)
    assert s3_ends.at_cloud() == ({"open/a": b"new"} if tags else {})
    assert report.objects_barred == (0 if tags else 1)


def test_tags_of_a_version_that_replaced_the_one_being_copied_do_not_let_that_leave(s3_ends, tag: Tag) -> None:
    s3_ends.fill({"open/a": b"old"})
    tag("open/a", release="cleared")
    sent: list[bytes] = []

    def replace(method: str, key: str) -> None:
        if (method, len(sent)) == ("read", 0):
            sent.append(b"secret")
        elif (method, len(sent)) == ("tags", 1) and s3_ends.home.calls["tags"] > 1:
            sent.append(b"made open")
        else:
            return
        s3_ends.fill({"open/a": sent[-1]})
        tag("open/a", **({"release": "cleared"} if len(sent) == 2 else {}))

    s3_ends.home.before = replace
    assert s3_ends.sync(tag_rules=RULES).ok
    assert (len(sent), s3_ends.at_cloud()) == (2, {"open/a": b"made open"})


def test_shares_ask_again_and_their_draft_names_nothing_that_stays(s3_ends, tag: Tag) -> None:
    contents = {f"open/{number}": b"1" for number in range(6)} | {f"open/{CANARY}": b"2", f"open/{CANARY}-denied": b"3"}
    s3_ends.fill(contents)
    for key in contents:
        if CANARY not in key:
            tag(key, release="cleared")

    def deny(method: str, key: str) -> None:
        if method == "tags" and key.endswith("-denied"):
            raise AccessDenied("s3://b@onprem", "GetObjectTagging: AccessDenied", fix="allow s3:GetObjectTagging")

    s3_ends.home.before = deny
    scope = KeyScope(prefix="digits/")
    route = Route(source=s3_ends.home, destination=s3_ends.cloud, dataset="digits", scope=scope, tag_rules=RULES)
    report, shares = divide(route, now=NOW, workers=2, share_bytes=1)
    assert (len(shares), report.objects_withheld, report.objects_barred) == (2, 1, 1)
    assert f"{CANARY}-denied: may not leave" in report.failures[0]
    tag("open/0", release="no")
    tallies = [copy_share(route, share, lambda key: True) for share in shares]
    assert [sum(tally.counts[fate] for tally in tallies) for fate in (ObjectFate.COPIED, ObjectFate.REFUSED)] == [5, 1]
    merged = merge(route, shares[0].draft)
    assert (merged.ok, merged.objects_withheld, merged.objects_barred) == (False, 1, 2)
    assert sorted(s3_ends.at_cloud()) == [f"open/{number}" for number in range(1, 6)]
    assert CANARY not in everything_at_cloud(s3_ends) + str(merged)
