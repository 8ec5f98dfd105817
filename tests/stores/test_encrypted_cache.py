"""The encrypted cache on a real S3 server, and on folders where only what it decides is looked at."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from spillway.errors import AccessDenied, ConfigError, Unreachable
from spillway.stores.base import ObjectStore, read_all
from spillway.stores.cache_room import BLOCKS, MANY, USES, evict, list_blocks
from spillway.stores.cached import CachedStore
from spillway.stores.encrypted_cache import SEAL_BYTES, EncryptedCache, key_of, prefix_of
from spillway.stores.local import LocalStore
from spillway.testing.checkpoints import WatchedStore
from spillway.testing.s3_server import S3Server

KEY = bytes(range(32))
OTHER_KEY = bytes(32)
SECRET = b"the face of somebody"
PREFIX = "0123456789abcdef/"
LIMIT = 1 << 20


@pytest.fixture
def store(s3_server: S3Server) -> ObjectStore:
    return s3_server.open(s3_server.new_bucket())


@pytest.fixture
def folder(tmp_path: Path) -> ObjectStore:
    (tmp_path / "cache").mkdir()
    return LocalStore(tmp_path / "cache")


def cache(store: ObjectStore, *, key: bytes = KEY, limit: int = LIMIT, **more: Any) -> EncryptedCache:
    return EncryptedCache(store, prefix=PREFIX, key=key, limit_bytes=limit, **more)


def test_a_block_comes_back_in_another_pod_with_the_key_and_tells_nothing_to_who_lacks_it(store: ObjectStore) -> None:
    cache(store).put("faces/anna", SECRET)
    assert cache(store).get("faces/anna") == SECRET
    assert cache(store, key=OTHER_KEY).get("faces/anna") is None
    for entry in store.list():
        assert b"face" not in entry.key.encode() + read_all(store, entry.key)
    assert "faces" not in prefix_of(KEY, "faces")
    assert prefix_of(KEY, "faces") != prefix_of(OTHER_KEY, "faces")


@pytest.mark.parametrize("harm", ["flipped", "cut", "empty", "of another block", "of another key"])
def test_an_entry_that_is_damaged_or_foreign_is_a_miss_and_is_replaced(store: ObjectStore, harm: str) -> None:
    cache(store).put("a", SECRET)
    (entry,) = list(store.list(PREFIX + BLOCKS))
    good = read_all(store, entry.key)
    if harm == "of another block":
        cache(store).put("b", b"x" * len(SECRET))
        good = next(read_all(store, e.key) for e in store.list(PREFIX + BLOCKS) if e.key != entry.key)
    if harm == "of another key":
        (other,) = [e for e in [cache(store, key=OTHER_KEY).put("a", SECRET)] if e is None] and [
            e for e in store.list(PREFIX + BLOCKS) if e.key != entry.key
        ]
        good = read_all(store, other.key)
    bad = {"flipped": bytes([good[0] ^ 1]) + good[1:], "cut": good[:-1], "empty": b""}.get(harm, good)
    store.put(entry.key, bad, size_bytes=len(bad))
    reader = cache(store)
    assert reader.get("a") is None
    assert (reader.counts.misses, reader.counts.damaged) == (1, 1)
    reader.put("a", SECRET)
    assert reader.get("a") == SECRET


def test_what_was_used_least_recently_makes_room_also_where_another_pod_has_used_it(folder: ObjectStore) -> None:
    block, ticks = b"x" * (LIMIT // 20 - SEAL_BYTES), iter(range(10**10, 10**11))
    first, second = (cache(folder, clock=lambda: float(next(ticks))) for _ in range(2))
    for number in range(20):
        first.put(str(number), block)
    assert second.get("0") == block
    second.settle()
    first.put("20", block)
    kept = [number for number in range(21) if cache(folder).get(str(number)) is not None]
    assert 0 in kept
    assert 20 in kept
    assert len(kept) <= 18
    assert sum(entry.size_bytes for entry in folder.list(PREFIX + BLOCKS)) <= LIMIT


def test_several_pods_at_once_stay_within_the_limit_and_a_sixteenth_for_each(store: ObjectStore) -> None:
    pods, block = 4, b"x" * (LIMIT // 64)

    def fill(pod: int) -> None:
        mine = cache(store)
        for number in range(60):
            mine.put(f"{pod}/{number}", block)

    with ThreadPoolExecutor(pods) as threads:
        list(threads.map(fill, range(pods)))
    assert 0 < sum(b.size_bytes for b in list_blocks(store, PREFIX)) <= LIMIT * (1 + pods / 16)


def test_a_block_larger_than_a_sixteenth_of_the_limit_is_not_kept(folder: ObjectStore) -> None:
    cache(folder).put("a", b"x" * (LIMIT // 16))
    assert list(folder.list()) == []


def test_a_cache_that_does_not_answer_is_left_alone_and_nothing_fails(folder: ObjectStore) -> None:
    class Silent(WatchedStore):
        asked = 0

        def read(self, key: str, **wanted: Any) -> Any:
            self.asked += 1
            raise Unreachable("the cache", "no route to host")

    silent = Silent(folder)
    reader = cache(silent)
    for _ in range(5):
        assert reader.get("a") is None
    reader.put("a", SECRET)
    assert (silent.asked, reader.counts.misses, list(folder.list())) == (1, 5, [])


def test_a_cache_that_takes_no_block_is_given_none_for_a_while_and_read_on(folder: ObjectStore) -> None:
    class Full(WatchedStore):
        puts = 0

        def put(self, key: str, body: Any, **wanted: Any) -> Any:
            self.puts += 1
            raise AccessDenied("the cache", "its quota is reached", fix="raise it")

    cache(folder).put("a", SECRET)
    full = Full(folder)
    reader = cache(full)
    for what in ("b", "c"):
        reader.put(what, SECRET)
    assert (full.puts, reader.get("a")) == (1, SECRET)


class Undeletable(WatchedStore):
    """A store whose identity may read and write, and delete nothing."""

    lists = 0

    def list(self, prefix: str = "") -> Any:
        self.lists += 1
        return super().list(prefix)

    def delete(self, keys: Any) -> Any:
        return dict.fromkeys(keys, "access denied")


def test_a_full_cache_whose_store_deletes_nothing_is_not_listed_for_every_block(folder: ObjectStore) -> None:
    block = b"x" * (LIMIT // 20 - SEAL_BYTES)
    filler = cache(folder)
    for number in range(20):
        filler.put(str(number), block)
    kept = Undeletable(folder)
    reader = cache(kept)
    reader.put("20", block)
    listed = kept.lists
    reader.put("21", block)
    assert (listed > 0, kept.lists, reader.get("0")) == (True, listed, block)


def test_uses_that_somebody_else_wrote_count_for_nothing(folder: ObjectStore) -> None:
    cache(folder).put("a", SECRET)
    for number, body in enumerate((b"not json", b"[]", b'{"x": "y"}')):
        folder.put(f"{PREFIX}uses/{number}", body, size_bytes=len(body))
    assert len(list_blocks(folder, PREFIX)) == 1
    assert evict(folder, PREFIX, limit_bytes=0, room_bytes=0) == 0
    assert list_blocks(folder, PREFIX) == []


@pytest.mark.parametrize("kind", ["one that deletes", "one that deletes nothing"])
def test_what_pods_tell_of_their_uses_does_not_grow_with_their_number(folder: ObjectStore, kind: str) -> None:
    ticks = iter(range(10**10, 10**11))
    cache(folder).put("a", SECRET)
    cache(folder).put("b", SECRET)
    store = folder if kind == "one that deletes" else Undeletable(folder)
    for _ in range(3 * MANY):
        pod = cache(store, clock=lambda: float(next(ticks)))
        pod.get("a")
        pod.settle()
    assert 0 < len(list(folder.list(PREFIX + USES))) <= MANY
    used_at = [block.used_at for block in list_blocks(folder, PREFIX)]
    assert used_at[0] < 10**10 <= used_at[1]
    assert kind != "one that deletes" or used_at[1] == next(ticks) - 1


def test_what_is_told_of_uses_counts_in_the_limit(folder: ObjectStore) -> None:
    filler = cache(folder)
    for number in range(9):
        filler.put(str(number), b"x" * (LIMIT // 20))
    for number in range(2):
        folder.put(f"{PREFIX}uses/{number}", b" " * (LIMIT // 2), size_bytes=LIMIT // 2)
    left = evict(folder, PREFIX, limit_bytes=LIMIT, room_bytes=LIMIT * 0.9)
    assert left == sum(entry.size_bytes for entry in folder.list(PREFIX)) <= LIMIT


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "00" * 33])
def test_a_key_that_is_none_is_refused_without_being_told(text: str) -> None:
    with pytest.raises(ConfigError, match="expected 64 hexadecimal digits") as refusal:
        key_of(text)
    assert not text or text not in str(refusal.value)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 25])
def test_every_range_of_an_object_is_the_same_through_the_cache_however_it_fits_the_blocks(
    store: ObjectStore, folder: ObjectStore, size: int
) -> None:
    content = bytes(range(size))
    etag = folder.put("data/a", content, size_bytes=size).etag
    cached = CachedStore(folder, cache(store), block_bytes=10)
    for _ in range(2):
        assert read_all(cached, "data/a", if_match=etag) == content
    for start, length in ((0, 1), (3, 10), (9, 2), (10, 10), (0, 10)):
        expected = content[start : start + length]
        assert b"".join(cached.read("data/a", start=start, length=length, if_match=etag)) == expected


def test_a_new_version_is_never_taken_from_the_cache(folder: ObjectStore, store: ObjectStore) -> None:
    cached = CachedStore(folder, cache(store))
    for content in (b"old", b"new"):
        etag = folder.put("data/a", content, size_bytes=3).etag
        assert read_all(cached, "data/a", if_match=etag) == content
        assert read_all(cached, "data/a") == content
