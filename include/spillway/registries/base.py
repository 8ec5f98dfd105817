"""The image registry that the mirror and the launch gate are written against."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest or index exactly as stored; ``digest`` (``sha256:...``) is of ``body`` and has been verified."""

    digest: str
    media_type: str
    body: bytes


class ImageRegistry(Protocol):
    """A registry, a repository prefix in one, or an image layout on disk.

    Every method raises ``Unreachable`` or ``AccessDenied``. ``reference`` is a tag or a digest.
    """

    @property
    def name(self) -> str:
        """How messages call it: ``registry onprem (127.0.0.1:5000)``."""

    def tags(self, repository: str) -> tuple[str, ...]:
        """All tags, every page of them; empty for a repository that does not exist."""

    def resolve(self, repository: str, reference: str) -> str | None:
        """The digest that the reference points at, or None where the registry does not have it."""

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest; raises Missing, and DigestMismatch where body and digest disagree."""

    def has_blob(self, repository: str, digest: str) -> bool: ...

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """The blob's bytes in chunks; raises DigestMismatch at the end if they are not what the digest promises."""

    def put_blob(self, repository: str, digest: str, chunks: Iterator[bytes], *, size_bytes: int) -> None:
        """Store the bytes under their digest; the registry refuses other bytes (DigestMismatch)."""

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Store the manifest under a tag or its digest; everything that it references must be there already."""
