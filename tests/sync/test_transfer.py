"""Copies of many objects: a few at a time, each of one version, none faster than a limited source."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Barrier, Event, Lock
from typing import Any

import pytest

from spillway.errors import AccessDenied, SpillwayError, StoreFull
from spillway.model import ObjectInfo
from spillway.stores import parts
from spillway.stores.base import read_all
from spillway.stores.limited import LimitedStore
from spillway.stores.local import LocalStore
from spillway.stores.parts import MIB
from spillway.stores.rate import RateLimit
from spillway.sync.manifest import verified_copies
from spillway.sync.plan import Action, PlannedObject
from spillway.sync.transfer import AHEAD_MAX, Transfer
from spillway.sync.workers import MEDIUM_THREADS, SMALL_MAX_BYTES, SMALL_THREADS
from spillway.testing.slept_time import SleptTime


def wanted(*entries: ObjectInfo) -> Iterator[PlannedObject]:
    for entry in entries:
        yield PlannedObject(key=entry.key, action=Action.COPY, reason="new", source=entry, destination=None)


def test_an_object_that_is_replaced_before_it_is_read_is_copied_as_it_is_then(ends) -> None:
    ends.fill({"x": b"old" * 1000})

    def change(method: str, key: str) -> None:
        if method == "read":
            ends.home.before = lambda method, key: None
            ends.fill({"x": b"newer" * 1000})

    ends.home.before = change
    assert ends.sync().ok
    assert ends.at_cloud() == {"x": b"newer" * 1000}
    assert ends.sync().objects_copied == 0


def test_a_large_object_that_is_replaced_between_two_parts_is_never_mixed(
    ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "SINGLE_MAX_BYTES", MIB)
    monkeypatch.setattr(parts, "PART_WISH_BYTES", 5 * MIB)
    old, new = (hashlib.shake_256(version).digest(11 * MIB) for version in (b"old", b"new"))
    ends.fill({"x": old})

    def change(method: str, key: str) -> None:
        if method == "read" and ends.home.calls["read"] == 2:
            ends.home.before = lambda method, key: None
            ends.fill({"x": new})

    ends.home.before = change
    assert ends.sync().ok
    assert ends.at_cloud() == {"x": new}


def test_an_object_that_never_stops_changing_fails_and_leaves_nothing(ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SINGLE_MAX_BYTES", 1000)
    ends.fill({"x": b"x" * 2000})

    def change(method: str, key: str) -> None:
        if method == "read":
            ends.fill({"x": hashlib.shake_256(ends.home.calls["read"].to_bytes(2)).digest(2000)})

    ends.home.before = change
    ends.sync()
    assert [(told.fate.value, "no longer holds" in told.reason) for told in ends.outcomes] == [("failed", True)]
    assert ends.at_cloud() == {}


@pytest.mark.parametrize("before", [0, 1], ids=["new", "replaced"])
@pytest.mark.parametrize("size", [9, 11 * MIB], ids=["small", "in parts"])
def test_a_slow_copy_of_an_older_version_never_takes_the_place_of_a_newer_one(
    ends, monkeypatch: pytest.MonkeyPatch, before: int, size: int
) -> None:
    monkeypatch.setattr(parts, "SINGLE_MAX_BYTES", MIB)
    monkeypatch.setattr(parts, "PART_WISH_BYTES", 5 * MIB)
    older, old, new = (hashlib.shake_256(version).digest(size) for version in (b"older", b"old", b"new"))
    other = type(ends)(ends.home.store, ends.cloud.store)
    ends.fill({"x": older})
    assert not before or ends.sync().ok
    ends.fill({"x": old})

    def full(method: str, key: str) -> None:
        if method == "put" and key.startswith(".spillway/entries/"):
            raise StoreFull("s3://x@cloud", "no space")

    put = ends.cloud.put

    def slow(key: str, body: bytes | Iterable[bytes], **options: Any) -> ObjectInfo:
        if key == "digits/x":
            body = body if isinstance(body, bytes) else b"".join(body)
            monkeypatch.setattr(ends.cloud, "put", put)
            ends.cloud.before = full
            ends.fill({"x": new})
            assert other.sync().ok
        return put(key, body, **options)

    monkeypatch.setattr(ends.cloud, "put", slow)
    with pytest.raises(StoreFull):
        ends.sync()
    assert ends.at_cloud() == {"x": new}
    assert verified_copies(ends.cloud.store) == {}, "it broke off, so nothing counts as whole"


@pytest.mark.parametrize("by_hand", ["changed", "deleted"])
def test_an_object_that_somebody_changes_at_the_destination_during_the_sync_is_replaced(ends, by_hand: str) -> None:
    ends.fill({"x": b"older"})
    ends.sync()
    ends.fill({"x": b"newer"})

    def meddle(method: str, key: str) -> None:
        if (method, key) == ("put", "digits/x"):
            ends.cloud.before = lambda method, key: None
            if by_hand == "changed":
                ends.cloud.store.put(key, b"wrong", size_bytes=5)
            else:
                ends.cloud.store.delete([key])

    ends.cloud.before = meddle
    assert ends.sync().objects_copied == 1
    assert ends.at_cloud() == {"x": b"newer"}


def test_no_more_objects_are_taken_than_are_soon_copied_and_each_is_told_as_it_ends(local_ends) -> None:
    local_ends.fill({f"{n:04}": b"%d" % n for n in range(3 * AHEAD_MAX)})
    taken = 0

    def counted() -> Iterator[PlannedObject]:
        nonlocal taken
        for planned in wanted(*local_ends.home.store.list("digits/")):
            taken += 1
            yield planned

    told = 0
    for copied in Transfer(local_ends.home, local_ends.cloud).run(counted()):
        told += 1
        assert copied.outcome.fate.value == "copied"
        assert taken - told <= AHEAD_MAX
    assert (taken, told, len(local_ends.at_cloud())) == (3 * AHEAD_MAX, 3 * AHEAD_MAX, 3 * AHEAD_MAX)


def test_whoever_stops_listening_stops_the_transfer(local_ends) -> None:
    local_ends.fill({f"{n:04}": b"%d" % n for n in range(3 * AHEAD_MAX)})
    running = Transfer(local_ends.home, local_ends.cloud).run(wanted(*local_ends.home.store.list("digits/")))
    next(running)
    running.close()
    there = len(local_ends.at_cloud())
    assert 0 < there <= AHEAD_MAX
    assert len(local_ends.at_cloud()) == there, "nothing goes on by itself"


def test_an_error_of_whoever_lists_ends_the_transfer(local_ends) -> None:
    local_ends.fill({"a": b"1"})

    def broken() -> Iterator[PlannedObject]:
        yield from wanted(*local_ends.home.store.list("digits/"))
        raise SpillwayError("the plan cannot be read any more")

    with pytest.raises(SpillwayError, match="cannot be read any more"):
        list(Transfer(local_ends.home, local_ends.cloud).run(broken()))


@pytest.mark.parametrize("size", [1000, 3 * MIB], ids=["small", "in parts"])
def test_every_byte_is_taken_from_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(parts, "SINGLE_MAX_BYTES", MIB)
    monkeypatch.setattr(parts, "PART_WISH_BYTES", MIB)
    for name in ("home", "cloud"):
        (tmp_path / name).mkdir()
    home, cloud = LocalStore(tmp_path / "home"), LocalStore(tmp_path / "cloud")
    for key in ("a", "b"):
        home.put(key, b"x" * size, size_bytes=size)
    clock = SleptTime()
    limit = RateLimit(1000, clock=clock.monotonic, sleep=clock.sleep)
    ended = list(Transfer(LimitedStore(home, limit.take), cloud).run(wanted(*home.list())))
    assert [copied.outcome.fate.value for copied in ended] == ["copied", "copied"]
    last_chunk = min(size, MIB)
    assert sum(clock.pauses) >= (2 * size - last_chunk) / 1000 - 0.25 - 1e-6
    assert read_all(cloud, "a") == b"x" * size


@pytest.mark.parametrize(("size", "most"), [(1, SMALL_THREADS), (SMALL_MAX_BYTES + 1, MEDIUM_THREADS)])
def test_many_small_objects_are_under_way_at_once_and_fewer_that_take_memory(local_ends, size: int, most: int) -> None:
    local_ends.fill({f"{n}": bytes(size) for n in range(most + 4)})
    lock, begun, seen = Lock(), 0, []

    def look() -> None:
        time.sleep(0.2)  # for those that should not begin
        seen.append(begun)

    all_there = Barrier(most, action=look, timeout=60)

    def before(method: str, key: str) -> None:
        nonlocal begun
        if method == "put" and key.startswith("digits/"):
            with lock:
                begun += 1
                among_the_first = begun <= most
            if among_the_first:
                all_there.wait()

    local_ends.cloud.before = before
    assert local_ends.sync().ok
    assert (seen, begun) == ([most], most + 4)


def test_refusals_here_and_there_do_not_end_a_sync_whose_store_answers_however_many_objects_are_under_way(
    local_ends,
) -> None:
    every, blocks = SMALL_THREADS // 3, 30
    local_ends.fill({f"{number:04}": b"x" for number in range(every * blocks)})
    refused = [Event() for _ in range(blocks)]

    def refuse_the_first_of_each_block(method: str, key: str) -> None:
        """What ends well was under way when the next refusal came."""
        if method == "put" and key.startswith("digits/"):
            block, place = divmod(int(key.removeprefix("digits/")), every)
            if place == 0:
                refused[block].set()
                raise AccessDenied("s3://x@cloud", "no writing of this one", fix="grant it")
            assert refused[min(block + 1, blocks - 1)].wait(60)

    local_ends.cloud.before = refuse_the_first_of_each_block
    report = local_ends.sync()
    assert report.objects_copied == (every - 1) * blocks
    told = [key for key, fate in local_ends.fates().items() if fate == "refused"]
    assert sorted(told) == [f"{every * block:04}" for block in range(blocks)]


def test_of_keys_of_which_one_is_the_folder_of_the_other_one_is_under_way_at_a_time(
    s3_ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that keeps keys as folders may lose one of two that are stored in the same moment."""
    contents = {"d": b"1", "d-x": b"2", "d/x": b"3", "d/x/y": b"4", "e/": b"", "e/x": b"5"}
    s3_ends.fill(contents)
    put, lock, under_way, crossed = s3_ends.cloud.put, Lock(), set[str](), list[tuple[str, str]]()
    together = Event()

    def slow(key: str, body: bytes | Iterable[bytes], **options: Any) -> ObjectInfo:
        with lock:
            crossed.extend(
                (key, other) for other in under_way if other.startswith(f"{key}/") or key.startswith(f"{other}/")
            )
            under_way.add(key)
            if {"digits/d", "digits/d-x"} <= under_way:
                together.set()
        if key in ("digits/d", "digits/d-x"):
            assert together.wait(60), "what only begins alike goes side by side"
            time.sleep(0.2)  # for those that should not begin
        try:
            return put(key, body, **options)
        finally:
            with lock:
                under_way.discard(key)

    monkeypatch.setattr(s3_ends.cloud, "put", slow)
    assert s3_ends.sync().ok
    assert crossed == []
    assert s3_ends.at_cloud() == contents
