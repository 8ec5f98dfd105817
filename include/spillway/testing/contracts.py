"""Contract suites: what every implementation of a protocol must do, as classes of tests.

An implementation's own test module subclasses the class and supplies its fixtures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier

import pytest

from spillway.errors import DigestMismatch, KeyRefused, Missing, PreconditionFailed, RequestRefused
from spillway.model import ObjectInfo
from spillway.stores.base import ObjectStore, Upload, read_all
from spillway.stores.parts import RangedBody

RACERS = 16
MIB = 1024**2

ORDINARY_KEYS = (
    "a",
    "b/c",
    "b/c.txt",
    "b-c",
    "b/ d ",
    "e+f %20&<>'\"",
    "ümläut/日本",
    "line\nbreak",
    "bell\x07",
    "q?x=1#y",
)
UNUSUAL_KEYS = ("/a", "//a", "b//c", "./b", "b/./c", "../b", "b/../c", "b/..", ".", "b\\c")


def chunked(content: bytes, size: int) -> Iterator[bytes]:
    """The content in chunks, as a network would deliver it."""
    for begin in range(0, len(content), size):
        yield content[begin : begin + size]


def sha256_hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def race(writers: int, write: Callable[[int], ObjectInfo]) -> list[int]:
    """The numbers of the writers that won; the others must have lost with PreconditionFailed."""
    start = Barrier(writers)

    def attempt(number: int) -> int | None:
        start.wait()
        try:
            write(number)
        except PreconditionFailed:
            return None
        return number

    with ThreadPoolExecutor(writers) as pool:
        return [number for number in pool.map(attempt, range(writers)) if number is not None]


class ObjectStoreContract:
    """Subclasses supply the fixture ``store``: an empty bucket of its own for each test."""

    large_bytes = 17 * MIB
    """A size that the implementation treats as large."""
    keeps_tags = False

    def test_what_was_put_is_read_back_with_its_facts(self, store: ObjectStore) -> None:
        content = b"hello"
        put = store.put(
            "data/x.bin", content, size_bytes=5, content_type="text/x-test", metadata={"origin": "instrument 7"}
        )
        head = store.head("data/x.bin")
        assert head is not None
        assert (put.size_bytes, put.etag, put.sha256) == (5, head.etag, sha256_hex(content))
        assert (head.key, head.size_bytes, head.sha256) == ("data/x.bin", 5, sha256_hex(content))
        assert (head.content_type, head.metadata) == ("text/x-test", {"origin": "instrument 7"})
        assert read_all(store, "data/x.bin") == content

    def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        store.put("empty", b"", size_bytes=0)
        head = store.head("empty")
        assert head is not None
        assert (head.size_bytes, head.sha256) == (0, sha256_hex(b""))
        assert read_all(store, "empty") == b""
        assert [entry.key for entry in store.list()] == ["empty"]

    def test_an_absent_object_is_none_from_head_and_missing_from_read(self, store: ObjectStore) -> None:
        assert store.head("absent") is None
        with pytest.raises(Missing, match="object 'absent'"):
            read_all(store, "absent")

    def test_tags_are_told_or_refused_and_never_made_up(self, store: ObjectStore) -> None:
        store.put("x", b"1", size_bytes=1)
        if self.keeps_tags:
            assert store.tags("x") == {}
        with pytest.raises(Missing if self.keeps_tags else RequestRefused, match="'absent'"):
            store.tags("absent")

    def test_a_range_is_read_as_asked(self, store: ObjectStore) -> None:
        store.put("x", b"0123456789", size_bytes=10)

        def read(start: int, length: int | None = None) -> bytes:
            return b"".join(store.read("x", start=start, length=length))

        assert (read(3), read(3, 4), read(0, 1), read(8, 10), read(10), read(12, 3), read(2, 0)) == (
            b"3456789",
            b"3456",
            b"0",
            b"89",
            b"",
            b"",
            b"",
        )

    def test_a_pinned_read_refuses_another_version(self, store: ObjectStore) -> None:
        old = store.put("x", b"old", size_bytes=3)
        assert read_all(store, "x", if_match=old.etag) == b"old"
        store.put("x", b"new", size_bytes=3)
        with pytest.raises(PreconditionFailed):
            read_all(store, "x", if_match=old.etag)
        store.delete(["x"])
        with pytest.raises(Missing):
            read_all(store, "x", if_match=old.etag)

    @pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
    def test_an_opened_object_gives_facts_and_bytes_of_one_version(self, store: ObjectStore, large: bool) -> None:
        content = hashlib.shake_256(b"old").digest(self.large_bytes if large else 10)
        store.put(
            "x", content, size_bytes=len(content), content_type="text/x-test", metadata={"origin": "instrument 7"}
        )
        opened = store.open("x")
        assert opened.info == store.head("x")
        assert b"".join(opened.chunks) == content
        with pytest.raises(Missing, match="object 'absent'"):
            store.open("absent")

    def test_a_body_that_is_read_by_ranges_is_stored_whole(self, store: ObjectStore) -> None:
        content = hashlib.shake_256(b"ranges").digest(self.large_bytes)
        body = RangedBody(len(content), lambda start, length: chunked(content[start : start + length], MIB))
        put = store.put("x", body, size_bytes=len(content), metadata={"origin": "instrument 7"})
        head = store.head("x")
        assert head is not None
        assert (put.sha256, put.etag, head.metadata) == (sha256_hex(content), head.etag, {"origin": "instrument 7"})
        assert sha256_hex(read_all(store, "x")) == sha256_hex(content)
        assert [entry.key for entry in store.list()] == ["x"]

    @pytest.mark.parametrize("key", ORDINARY_KEYS)
    def test_an_ordinary_key_stays_exact(self, store: ObjectStore, key: str) -> None:
        store.put(key, key.encode(), size_bytes=len(key.encode()))
        assert [entry.key for entry in store.list()] == [key]
        assert read_all(store, key) == key.encode()
        assert store.delete([key]) == {}
        assert list(store.list()) == []

    @pytest.mark.parametrize("key", UNUSUAL_KEYS)
    def test_an_unusual_key_stays_exact_or_is_refused_by_name(self, store: ObjectStore, key: str) -> None:
        neighbours = ("a", "b/c", "c", "b")
        store.put(neighbours[0], b"neighbour", size_bytes=9)
        store.put(neighbours[1], b"neighbour", size_bytes=9)
        expected = {"a": b"neighbour", "b/c": b"neighbour"}
        try:
            store.put(key, b"unusual", size_bytes=7)
            expected[key] = b"unusual"
        except KeyRefused as refusal:
            assert refusal.key == key
        assert {entry.key: read_all(store, entry.key) for entry in store.list()} == expected

    def test_a_listing_gives_every_object_of_the_prefix_once(self, store: ObjectStore) -> None:
        wanted = {f"d/{number:04}" for number in range(30)} | {"d/sub/x", "d/e"}
        for key in wanted | {"d", "d2/x", "other"}:
            store.put(key if key != "d" else "dd", b"x", size_bytes=1)
        listed = [entry.key for entry in store.list("d/")]
        assert (len(listed), set(listed)) == (len(wanted), wanted)
        assert {entry.key for entry in store.list("d/s")} == {"d/sub/x"}
        assert list(store.list("nothing/")) == []

    def test_a_listed_object_has_the_facts_of_its_head(self, store: ObjectStore) -> None:
        store.put("x", b"12345", size_bytes=5)
        (listed,) = store.list()
        head = store.head("x")
        assert head is not None
        assert (listed.size_bytes, listed.etag, listed.modified_at) == (5, head.etag, head.modified_at)
        assert listed.sha256 in (None, head.sha256)

    def test_a_body_in_chunks_of_any_size_is_the_same_object(self, store: ObjectStore) -> None:
        content = bytes(range(256)) * 1000
        for chunk_bytes in (1000, 65536, len(content)):
            put = store.put("x", chunked(content, chunk_bytes), size_bytes=len(content))
            assert put.sha256 == sha256_hex(content)
            assert read_all(store, "x") == content

    def test_a_large_body_in_chunks_is_stored_whole_and_keeps_its_facts(self, store: ObjectStore) -> None:
        content = hashlib.shake_256(b"large").digest(self.large_bytes)
        digest = sha256_hex(content)
        put = store.put(
            "x",
            chunked(content, 100_000),
            size_bytes=len(content),
            sha256=digest,
            content_type="text/x-test",
            metadata={"origin": "instrument 7"},
        )
        head = store.head("x")
        assert head is not None
        assert (head.content_type, head.metadata) == ("text/x-test", {"origin": "instrument 7"})
        assert (put.sha256, head.sha256, head.size_bytes, head.etag) == (digest, digest, len(content), put.etag)
        assert sha256_hex(read_all(store, "x")) == digest

    @pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
    def test_bytes_that_do_not_match_their_digest_are_never_visible(self, store: ObjectStore, large: bool) -> None:
        content = b"x" * (self.large_bytes if large else 10)
        store.put("x", b"before", size_bytes=6)
        with pytest.raises(DigestMismatch):
            store.put("x", chunked(content, MIB), size_bytes=len(content), sha256=sha256_hex(b"other"))
        assert read_all(store, "x") == b"before"

    @pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
    @pytest.mark.parametrize("difference", [-1, 1], ids=["longer", "shorter"])
    def test_a_body_of_another_length_than_promised_is_never_visible(
        self, store: ObjectStore, large: bool, difference: int
    ) -> None:
        content = b"x" * (self.large_bytes if large else 10)
        with pytest.raises(DigestMismatch, match=f"over {len(content) + difference} bytes"):
            store.put("x", chunked(content, MIB), size_bytes=len(content) + difference)
        assert store.head("x") is None

    def test_a_body_that_breaks_off_leaves_the_old_object(self, store: ObjectStore) -> None:
        def broken() -> Iterator[bytes]:
            yield b"x" * 6 * MIB
            raise OSError("the source went away")

        store.put("x", b"before", size_bytes=6)
        with pytest.raises(OSError, match="the source went away"):
            store.put("x", broken(), size_bytes=self.large_bytes)
        assert read_all(store, "x") == b"before"
        assert [entry.key for entry in store.list()] == ["x"]

    @pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
    def test_a_conditional_write_holds_its_condition(self, store: ObjectStore, large: bool) -> None:
        size = self.large_bytes if large else 4

        def put(fill: bytes, *, if_absent: bool = False, if_match: str | None = None) -> ObjectInfo:
            return store.put("x", fill * size, size_bytes=size, if_absent=if_absent, if_match=if_match)

        with pytest.raises(PreconditionFailed):
            put(b"0", if_match="0" * 32)
        first = put(b"1", if_absent=True)
        with pytest.raises(PreconditionFailed):
            put(b"2", if_absent=True)
        second = put(b"3", if_match=first.etag)
        with pytest.raises(PreconditionFailed):
            put(b"4", if_match=first.etag)
        assert read_all(store, "x", if_match=second.etag) == b"3" * size

    def test_of_many_writers_of_an_absent_object_exactly_one_wins(self, store: ObjectStore) -> None:
        winners = race(RACERS, lambda n: store.put("x", b"%02d" % n, size_bytes=2, if_absent=True))
        assert len(winners) == 1
        assert read_all(store, "x") == b"%02d" % winners[0]

    def test_of_many_writers_over_one_version_exactly_one_wins(self, store: ObjectStore) -> None:
        etag = store.put("x", b"start", size_bytes=5).etag
        winners = race(RACERS, lambda n: store.put("x", b"%02d" % n, size_bytes=2, if_match=etag))
        assert len(winners) == 1
        assert read_all(store, "x") == b"%02d" % winners[0]

    def test_deleting_removes_those_keys_only_and_what_is_gone_is_not_refused(self, store: ObjectStore) -> None:
        for key in ("d/a", "d/b", "d/c/x", "d2"):
            store.put(key, b"x", size_bytes=1)
        assert store.delete(["d/a", "d/gone", "d/c", "d"]) == {}
        assert {entry.key for entry in store.list()} == {"d/b", "d/c/x", "d2"}
        assert store.delete([]) == {}

    def test_what_breaks_off_leaves_no_upload_and_forgetting_one_that_is_gone_is_no_error(
        self, store: ObjectStore
    ) -> None:
        with pytest.raises(DigestMismatch):
            store.put("x/large", chunked(b"s" * 17 * MIB, MIB), size_bytes=17 * MIB, sha256=sha256_hex(b"other"))
        store.put("x/whole", b"w", size_bytes=1)
        assert list(store.uploads()) == list(store.uploads("x/")) == []
        store.abort(Upload("x/whole", "0" * 32, datetime.now(UTC)))
        assert read_all(store, "x/whole") == b"w"


class FlatKeysContract:
    """For stores where no key is a folder; the fixture is the same ``store``."""

    def test_a_key_that_is_also_the_beginning_of_others_is_an_object_of_its_own(self, store: ObjectStore) -> None:
        keys = ["d/servers", "d/servers/0", "d/servers/0/x", "d/empty/"]
        for key in keys:
            content = b"" if key.endswith("/") else key.encode()
            store.put(key, content, size_bytes=len(content))
        assert {entry.key: entry.size_bytes for entry in store.list()} == {
            "d/servers": 9,
            "d/servers/0": 11,
            "d/servers/0/x": 13,
            "d/empty/": 0,
        }
        assert store.delete(["d/servers"]) == {}
        assert {entry.key for entry in store.list()} == set(keys) - {"d/servers"}
        assert read_all(store, "d/servers/0/x") == b"d/servers/0/x"
