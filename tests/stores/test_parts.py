"""Parts are planned before the first byte, within the limits of the protocol."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import DigestMismatch, SpillwayError
from spillway.stores.parts import (
    MIB,
    PART_MAX_BYTES,
    PART_MIN_BYTES,
    PARTS_MAX,
    PromisedBody,
    part_bytes,
    split_in_parts,
)

GIB = 1024 * MIB
LARGEST = PARTS_MAX * PART_MAX_BYTES


def test_a_wish_that_would_need_too_many_parts_is_raised() -> None:
    size = part_bytes(100 * GIB, wish_bytes=8 * MIB)
    assert size == 11 * MIB
    assert -(-100 * GIB // size) <= PARTS_MAX


@given(st.integers(1, LARGEST), st.integers(1, 64 * MIB))
def test_every_plan_is_within_the_limits_and_stays_the_same(size_bytes: int, wish: int) -> None:
    size = part_bytes(size_bytes, wish_bytes=wish)
    assert PART_MIN_BYTES <= size <= PART_MAX_BYTES
    assert -(-size_bytes // size) <= PARTS_MAX
    assert part_bytes(size_bytes, wish_bytes=wish) == size


def test_an_object_that_no_plan_can_hold_is_refused_before_it_is_sent() -> None:
    with pytest.raises(SpillwayError, match="does not fit in 10000 parts of 5 GiB; split it"):
        part_bytes(LARGEST + 1)


@given(st.lists(st.binary(max_size=20)), st.integers(1, 30))
def test_splitting_keeps_the_bytes_and_cuts_where_asked(chunks: list[bytes], size: int) -> None:
    parts = list(split_in_parts(chunks, size))
    assert b"".join(parts) == b"".join(chunks)
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts[-1:])


def test_a_body_that_keeps_its_promises_is_passed_on_with_its_digest() -> None:
    body = PromisedBody("x", [b"he", b"llo"], size_bytes=5, sha256=hashlib.sha256(b"hello").hexdigest())
    assert b"".join(body) == b"hello"
    assert body.verify() == hashlib.sha256(b"hello").hexdigest()


@pytest.mark.parametrize(
    ("size_bytes", "sha256"), [(4, None), (6, None), (5, "0" * 64)], ids=["longer", "shorter", "other bytes"]
)
def test_a_broken_promise_is_a_mismatch(size_bytes: int, sha256: str | None) -> None:
    body = PromisedBody("x", [b"he", b"llo"], size_bytes=size_bytes, sha256=sha256)
    assert b"".join(body) == b"hello"
    with pytest.raises(DigestMismatch, match=f"expected digest .* over {size_bytes} bytes, .* over 5 bytes"):
        body.verify()


def test_an_endless_body_is_read_to_the_promised_size_only() -> None:
    def endless():
        while True:
            yield b"x" * 100

    body = PromisedBody("x", endless(), size_bytes=1000, sha256=None)
    assert len(b"".join(body)) == 1100
    with pytest.raises(DigestMismatch):
        body.verify()
