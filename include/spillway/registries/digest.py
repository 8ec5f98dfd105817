"""Digests of blobs and manifests: computed, and verified while bytes stream by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from spillway.errors import DigestMismatch
from spillway.errors.counts import counted

DIGEST_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")


def is_digest(reference: str) -> bool:
    """Whether the reference is a digest and not a tag."""
    return DIGEST_PATTERN.fullmatch(reference) is not None


def label(repository: str, reference: str) -> str:
    """``repository:tag`` or ``repository@digest``, for messages."""
    return f"{repository}{'@' if is_digest(reference) else ':'}{reference}"


def digest_of(body: bytes) -> str:
    """``sha256:`` and the hex digest of the bytes."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def verified(chunks: Iterator[bytes], digest: str, *, what: str, size_bytes: int | None = None) -> Iterator[bytes]:
    """The same bytes, except that the last chunk is only given once all of them are known to match the digest.

    A receiver that needs every byte, such as an upload of a stated length, therefore never completes on wrong ones.

    Raises:
        DigestMismatch: the bytes, or their number where ``size_bytes`` is given, are not what was promised.
    """
    checksum, count, held = hashlib.sha256(), 0, b""
    for chunk in chunks:
        if held:
            yield held
        held = chunk
        checksum.update(chunk)
        count += len(chunk)
    seen = f"sha256:{checksum.hexdigest()}"
    if seen != digest:
        raise DigestMismatch(what, expected=digest, seen=seen)
    if size_bytes is not None and count != size_bytes:
        raise DigestMismatch(
            what, expected=f"{digest} of {counted(size_bytes, 'byte')}", seen=f"{seen} of {counted(count, 'byte')}"
        )
    if held:
        yield held
