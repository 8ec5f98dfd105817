"""The public part of a dataset is recorded at its home: objects by their versions, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from spillway.errors import Missing
from spillway.model import KeyScope
from spillway.stores.entries import read_copy
from spillway.sync.leaving import TagRules
from spillway.sync.manifest import manifest_key
from spillway.sync.parts import record_part
from spillway.sync.report import SyncReport

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLEARED = TagRules(
    decide=lambda key: key.startswith("digits/open/"), allow=lambda key, tags: tags.get("release") == "cleared"
)


def record(ends: Any, **wanted: Any) -> SyncReport:
    ends.home.calls.clear()
    rules = {"admit": lambda key: key.startswith("digits/open/"), "tag_rules": None, **wanted}
    return record_part(ends.home, "digits@public", KeyScope(prefix="digits/"), now=NOW, **rules)


def part(ends: Any) -> dict[str, str]:
    """The versions that a pod of the part would read."""
    return {key: synced.destination_etag for key, synced in read_copy(ends.home.store, manifest_key("digits@public"))}


def test_only_objects_of_the_part_are_recorded_by_their_versions_and_once(ends: Any) -> None:
    ends.fill({"open/a": b"1", "open/b": b"2", "secret": b"3"})
    reports = [record(ends), record(ends)]
    assert ends.home.calls["put"] == 0
    assert [(report.objects_unchanged, report.objects_withheld, report.ok) for report in reports] == [(2, 1, True)] * 2
    before = part(ends)
    assert before == {e.key: e.etag for e in ends.home.store.list("digits/open/")}
    ends.fill({"open/a": b"new"})
    assert part(ends) == before
    record(ends)
    assert part(ends) == {e.key: e.etag for e in ends.home.store.list("digits/open/")} != before


def test_what_tags_decide_is_asked_for_each_time(s3_ends: Any, tag: Callable[..., None]) -> None:
    s3_ends.fill({"open/a": b"1", "open/b": b"2"})
    for key in ("open/a", "open/b"):
        tag(key, release="cleared")
    record(s3_ends, tag_rules=CLEARED)
    assert set(part(s3_ends)) == {"digits/open/a", "digits/open/b"}
    tag("open/b")
    assert record(s3_ends, tag_rules=CLEARED).objects_withheld == 1
    assert (s3_ends.home.calls["tags"], set(part(s3_ends))) == (2, {"digits/open/a"})


def test_an_object_whose_tags_cannot_be_read_leaves_nothing_recorded(local_ends: Any) -> None:
    local_ends.fill({"open/a": b"1", "open/b": b"2"})
    report = record(local_ends, tag_rules=CLEARED)
    assert (report.ok, report.objects_barred, local_ends.home.calls["put"]) == (False, 2, 0)


def test_a_dataset_of_which_nothing_is_of_the_part_is_missing(local_ends: Any) -> None:
    local_ends.fill({"secret": b"3"})
    with pytest.raises(Missing, match=r"dataset 'digits@public' is not in .*check the rules of the dataset"):
        record(local_ends)
