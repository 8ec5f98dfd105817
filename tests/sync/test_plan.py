"""A plan gives every object one action, and guards deletes before anything is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import DeletesRefused
from spillway.model import DELETE_SHARE_MAX, ObjectInfo, SyncedObject
from spillway.sync.compare import SETTLED, compare_content
from spillway.sync.listing import Listed
from spillway.sync.plan import Action, PlannedObject, Sides, guard_deletes, plan_object
from spillway.sync.rows import Row, Rows

compare = partial(compare_content, source_name="s3://datasets@onprem")


def listing(**etags: str) -> list[ObjectInfo]:
    return [ObjectInfo(key=key, size_bytes=10, etag=etag) for key, etag in etags.items()]


def numbered(count: int, *, first: int = 0) -> list[ObjectInfo]:
    return [ObjectInfo(key=f"{n:04}", size_bytes=10, etag=f"e{n}", sha256=f"{n:064}") for n in range(first, count)]


def rows(objects: Iterable[ObjectInfo]) -> Rows:
    return Rows((entry.key, entry.size_bytes, entry.etag, entry.sha256) for entry in objects)


def planned(
    source: Iterable[ObjectInfo],
    destination: Iterable[ObjectInfo],
    *,
    delete: bool,
    recorded: Mapping[str, SyncedObject] | None = None,
    delete_share_max: float = DELETE_SHARE_MAX,
) -> list[PlannedObject]:
    listed = Listed(
        source=rows(source),
        destination=rows(destination),
        recorded=Rows((key, *synced) for key, synced in (recorded or {}).items()),
    )
    sides = Sides()
    plan: list[PlannedObject] = []

    def settle(row: Row) -> None:
        key, size_bytes, etag, etag_here, _ = row
        there, here = (ObjectInfo(key=key, size_bytes=size_bytes, etag=known) for known in (etag, etag_here))
        plan.append(PlannedObject(key, Action.KEEP, SETTLED, there, here))

    for match in listed.matches(settle):
        plan.append(plan_object(match, compare, delete=delete))
    for each in plan:
        sides.count(each)
    guard_deletes(
        sides.deletes,
        at_source=sides.source,
        at_destination=sides.destination,
        share_max=delete_share_max,
        things="objects",
    )
    return plan


def of(plan: list[PlannedObject], action: Action) -> list[str]:
    return [planned.key for planned in plan if planned.action is action]


def synced(**etags: str) -> dict[str, SyncedObject]:
    return {key: SyncedObject(10, etag, f"copy-{etag}") for key, etag in etags.items()}


def test_each_object_has_one_action_with_its_reason_in_order_of_keys() -> None:
    plan = planned(
        listing(new="1", kept="1", changed="2"),
        listing(extra="1", changed="copy-1", kept="copy-1"),
        delete=False,
        recorded=synced(kept="1", changed="1"),
    )
    assert [(each.key, each.action, each.reason) for each in plan] == [
        ("changed", Action.COPY, "changed on one side only since the last verified sync"),
        ("extra", Action.KEEP, "only at the destination; deleting is off"),
        ("kept", Action.KEEP, "unchanged on both sides since the last verified sync"),
        ("new", Action.COPY, "not at the destination"),
    ]


def test_with_delete_on_only_what_the_source_no_longer_has_goes() -> None:
    plan = planned(numbered(10), numbered(11), delete=True)
    assert of(plan, Action.DELETE) == ["0010"]
    assert len(of(plan, Action.KEEP)) == 10


def test_a_key_beyond_what_an_object_store_holds_is_refused() -> None:
    plan = planned([ObjectInfo(key="ü" * 513, size_bytes=1, etag="e")], [], delete=False)
    assert [(each.action, each.reason) for each in plan] == [
        (Action.REFUSE, "its key is longer than the 1024 bytes of an object store")
    ]


def test_an_empty_source_never_empties_the_destination() -> None:
    with pytest.raises(DeletesRefused, match=r"the source lists no objects and the destination has 1000.*nothing was"):
        planned([], numbered(1000), delete=True, delete_share_max=1.0)


@pytest.mark.parametrize(("left", "refused"), [(8, False), (7, True), (1, True)])
def test_deleting_more_than_a_fifth_is_refused(left: int, refused: bool) -> None:
    if not refused:
        assert len(planned(numbered(left), numbered(10), delete=True)) == 10
        return
    with pytest.raises(DeletesRefused, match=f"would delete {10 - left} of 10 objects .* the guard allows 20%"):
        planned(numbered(left), numbered(10), delete=True)


def test_a_larger_share_is_deleted_only_when_it_is_allowed_by_number() -> None:
    plan = planned(numbered(5), numbered(10), delete=True, delete_share_max=0.5)
    assert len(of(plan, Action.DELETE)) == 5


@pytest.mark.parametrize("percent", range(1, 101))
def test_a_share_that_is_allowed_is_allowed_to_the_last_object(percent: int) -> None:
    def guard(deletes: int) -> None:
        guard_deletes(deletes, at_source=1, at_destination=100, share_max=percent / 100, things="objects")

    guard(percent)
    with pytest.raises(DeletesRefused, match=f"--delete-up-to {percent + 1}"):
        guard(percent + 1)


def test_nothing_to_do_is_a_plan_like_any_other() -> None:
    assert planned([], [], delete=True) == []
    assert len(of(planned(numbered(3), numbered(3), delete=True), Action.KEEP)) == 3


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
            planned(there, here, delete=delete, delete_share_max=1)
        return
    plan = planned(there, here, delete=delete, delete_share_max=1)
    assert [each.key for each in plan] == sorted(source.keys() | destination.keys())
    random.shuffle(there)
    random.shuffle(here)
    assert planned(there, here, delete=delete, delete_share_max=1) == plan


@given(st.dictionaries(keys, contents, min_size=1), st.dictionaries(keys, contents), st.booleans(), st.booleans())
def test_a_second_plan_after_applying_the_first_changes_nothing(
    source: dict[str, str], destination: dict[str, str], known: bool, delete: bool
) -> None:
    there, here = as_listing(source, known=known, store="s"), as_listing(destination, known=known, store="d")
    plan = planned(there, here, delete=delete, delete_share_max=1)
    after = dict(destination)
    for each in plan:
        if each.action is Action.COPY:
            after[each.key] = source[each.key]
        elif each.action is Action.DELETE:
            del after[each.key]
    here = as_listing(after, known=known, store="d")
    etags = {entry.key: entry.etag for entry in here}
    recorded = {
        entry.key: SyncedObject(size_bytes=entry.size_bytes, source_etag=entry.etag, destination_etag=etags[entry.key])
        for entry in there
    }
    assert {key: after[key] for key in source} == source
    again = planned(there, here, delete=delete, recorded=recorded, delete_share_max=1)
    assert len(of(again, Action.KEEP)) == len(again)
