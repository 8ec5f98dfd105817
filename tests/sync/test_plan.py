"""A plan gives every object one action, and guards deletes before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import DeletesRefused
from spillway.model import ObjectInfo
from spillway.sync.compare import SyncedObject, SyncManifest, compare_content
from spillway.sync.plan import Action, plan_sync

compare = partial(compare_content, source_name="s3://datasets@onprem")


def listing(**etags: str) -> list[ObjectInfo]:
    return [ObjectInfo(key=key, size_bytes=10, etag=etag) for key, etag in etags.items()]


def numbered(count: int, *, first: int = 0) -> list[ObjectInfo]:
    return [ObjectInfo(key=f"{n:04}", size_bytes=10, etag=f"e{n}", sha256=f"{n:064}") for n in range(first, count)]


def manifest(**etags: str) -> SyncManifest:
    objects = {
        key: SyncedObject(size_bytes=10, source_etag=etag, destination_etag=f"copy-{etag}")
        for key, etag in etags.items()
    }
    return SyncManifest(dataset="d", source="s3://datasets@onprem", prefix="", objects=objects)


def test_each_object_has_one_action_with_its_reason_in_order_of_keys() -> None:
    plan = plan_sync(
        listing(new="1", kept="1", changed="2"),
        listing(extra="1", changed="copy-1", kept="copy-1"),
        compare,
        delete=False,
        previous=manifest(kept="1", changed="1"),
    )
    assert [(planned.key, planned.action, planned.reason) for planned in plan.objects] == [
        ("changed", Action.COPY, "not known to be equal"),
        ("extra", Action.KEEP, "only at the destination; deleting is off"),
        ("kept", Action.KEEP, "unchanged on both sides since the last verified sync"),
        ("new", Action.COPY, "not at the destination"),
    ]


def test_with_delete_on_only_what_the_source_no_longer_has_goes() -> None:
    plan = plan_sync(numbered(10), numbered(11), compare, delete=True, previous=None)
    assert [planned.key for planned in plan.of(Action.DELETE)] == ["0010"]
    assert len(plan.of(Action.KEEP)) == 10


def test_a_key_beyond_what_an_object_store_holds_is_refused() -> None:
    plan = plan_sync([ObjectInfo(key="ü" * 513, size_bytes=1, etag="e")], [], compare, delete=False, previous=None)
    assert [(planned.action, planned.reason) for planned in plan.objects] == [
        (Action.REFUSE, "its key is longer than the 1024 bytes of an object store")
    ]


def test_an_empty_source_never_empties_the_destination() -> None:
    with pytest.raises(DeletesRefused, match=r"the source lists no objects and the destination has 1000.*nothing was"):
        plan_sync([], numbered(1000), compare, delete=True, previous=None, delete_share_max=1.0)


@pytest.mark.parametrize(("left", "refused"), [(8, False), (7, True), (1, True)])
def test_deleting_more_than_a_fifth_is_refused(left: int, refused: bool) -> None:
    if not refused:
        assert len(plan_sync(numbered(left), numbered(10), compare, delete=True, previous=None).objects) == 10
        return
    with pytest.raises(DeletesRefused, match=f"would delete {10 - left} of 10 objects .* the guard allows 20%"):
        plan_sync(numbered(left), numbered(10), compare, delete=True, previous=None)


def test_a_larger_share_is_deleted_only_when_it_is_allowed_by_number() -> None:
    plan = plan_sync(numbered(5), numbered(10), compare, delete=True, previous=None, delete_share_max=0.5)
    assert len(plan.of(Action.DELETE)) == 5


def test_nothing_to_do_is_a_plan_like_any_other() -> None:
    assert plan_sync([], [], compare, delete=True, previous=None).changes_nothing
    assert plan_sync(numbered(3), numbered(3), compare, delete=True, previous=None).changes_nothing


keys = st.text(st.sampled_from("ab/. -é\n"), max_size=4)
contents = st.sampled_from(["1" * 64, "2" * 64, "3" * 64])


def as_listing(objects: Mapping[str, str], *, known: bool, store: str) -> list[ObjectInfo]:
    return [
        ObjectInfo(key=key, size_bytes=len(key), etag=f"{store}-{content}", sha256=content if known else None)
        for key, content in objects.items()
    ]


@given(st.dictionaries(keys, contents), st.dictionaries(keys, contents), st.booleans(), st.booleans(), st.randoms())
def test_every_object_of_either_side_is_planned_once_whatever_the_order(
    source: dict[str, str], destination: dict[str, str], known: bool, delete: bool, random
) -> None:
    there, here = as_listing(source, known=known, store="s"), as_listing(destination, known=known, store="d")
    if delete and not source and destination:
        with pytest.raises(DeletesRefused):
            plan_sync(there, here, compare, delete=delete, previous=None, delete_share_max=1)
        return
    plan = plan_sync(there, here, compare, delete=delete, previous=None, delete_share_max=1)
    assert [planned.key for planned in plan.objects] == sorted(source.keys() | destination.keys())
    random.shuffle(there)
    random.shuffle(here)
    assert plan_sync(there, here, compare, delete=delete, previous=None, delete_share_max=1) == plan


@given(st.dictionaries(keys, contents, min_size=1), st.dictionaries(keys, contents), st.booleans(), st.booleans())
def test_a_second_plan_after_applying_the_first_changes_nothing(
    source: dict[str, str], destination: dict[str, str], known: bool, delete: bool
) -> None:
    there, here = as_listing(source, known=known, store="s"), as_listing(destination, known=known, store="d")
    plan = plan_sync(there, here, compare, delete=delete, previous=None, delete_share_max=1)
    after = dict(destination)
    for planned in plan.objects:
        if planned.action is Action.COPY:
            after[planned.key] = source[planned.key]
        elif planned.action is Action.DELETE:
            del after[planned.key]
    here = as_listing(after, known=known, store="d")
    etags = {entry.key: entry.etag for entry in here}
    recorded = {
        entry.key: SyncedObject(size_bytes=entry.size_bytes, source_etag=entry.etag, destination_etag=etags[entry.key])
        for entry in there
    }
    previous = SyncManifest(dataset="d", source="s", prefix="", objects=recorded)
    assert {key: after[key] for key in source} == source
    assert plan_sync(there, here, compare, delete=delete, previous=previous, delete_share_max=1).changes_nothing
