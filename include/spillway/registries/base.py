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


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """One thing that is known by its digest: as a manifest refers to it, or as a registry answers for a tag."""

    digest: str
    size_bytes: int
    media_type: str


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

    def describe(self, repository: str, reference: str) -> Descriptor | None:
        """What the reference points at, its manifest not read; None where the registry does not have it."""

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest; raises Missing, and DigestMismatch where body and digest disagree."""

    def referrers(self, repository: str, digest: str) -> Manifest | None:
        """An index of what refers to the manifest, as signatures do; None where the registry keeps no such list.

        Such a registry has it as a tag, ``sha256-`` and the digits, where whoever pushed them made one.
        """

    def has_blob(self, repository: str, digest: str) -> bool: ...

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """The blob's bytes in chunks; raises DigestMismatch at the end if they are not what the digest promises."""

    def put_blob(
        self, repository: str, digest: str, chunks: Iterator[bytes], *, size_bytes: int, mount_from: str | None = None
    ) -> bool:
        """Store the bytes under their digest; the registry refuses other bytes (DigestMismatch).

        Args:
            mount_from: another repository of this registry that has the blob.
        Returns:
            Whether they had to be sent: False where the registry took them from ``mount_from``, and read no chunk.
        """

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> None:
        """Store the manifest under a tag or its digest; everything that it references must be there already."""

    def delete(self, repository: str, reference: str) -> None:
        """Remove a tag; by a digest, the manifest with every tag that it has. Nothing happens where it is gone already.

        Raises:
            RequestRefused: the registry deletes nothing, or no tag without its manifest.
        """
