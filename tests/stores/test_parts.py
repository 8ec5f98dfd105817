"""Parts are planned before the first byte, within the limits of the protocol."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.errors import DigestMismatch, RequestRefused
from spillway.stores.parts import (
    MIB,
    PART_MAX_BYTES,
    PARTS_MAX,
    PromisedBody,
    part_bytes,
    split_in_parts,
)

GIB = 1024 * MIB
LARGEST = PARTS_MAX * PART_MAX_BYTES


@pytest.mark.parametrize(
    ("size_bytes", "part"),
    [(17 * MIB, 16 * MIB), (PARTS_MAX * 16 * MIB, 16 * MIB), (PARTS_MAX * 16 * MIB + 1, 17 * MIB), (LARGEST, 5 * GIB)],
    ids=["as wished", "the most parts", "one byte more", "the largest object"],
)
def test_parts_are_larger_where_there_would_be_too_many(size_bytes: int, part: int) -> None:
    assert part_bytes("x", size_bytes) == part


@given(st.integers(1, LARGEST))
def test_every_plan_is_within_the_limits(size_bytes: int) -> None:
    size = part_bytes("x", size_bytes)
    assert 5 * MIB <= size <= PART_MAX_BYTES
    assert -(-size_bytes // size) <= PARTS_MAX


def test_an_object_that_no_plan_can_hold_is_refused_before_it_is_sent() -> None:
    with pytest.raises(RequestRefused, match=rf"s3://b@x/y refused {LARGEST + 1} bytes: an object holds at most"):
        part_bytes("s3://b@x/y", LARGEST + 1)


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
