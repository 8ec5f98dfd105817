"""What refers to an image without a tag of its own, as signatures and SBOMs do in a registry that lists them."""

from __future__ import annotations

from spillway.images.mirror import MirrorReport, mirror_digest
from spillway.images.transfer import BlobMover
from spillway.registries.content import children


def bring_referrers(mover: BlobMover, digest: str) -> tuple[MirrorReport, ...] | None:
    """Have at the destination what refers to the image at the source.

    A destination that keeps no list of it gets the source's as the tag that the distribution specification names for
    that, last, so that whoever reads it finds all of it.

    Returns:
        What was brought; None where the source keeps no such lists.
    Raises:
        Missing, DigestMismatch: as ``mirror``.
    """
    repository, destination = mover.repository, mover.destination
    listed = mover.source.referrers(repository, digest)
    if listed is None:
        return None
    entries = children(listed)
    absent = [entry for entry in entries if destination.resolve(repository, entry.digest) is None]
    brought = tuple(mirror_digest(mover, entry.digest, entry.digest) for entry in absent)
    if entries and not mover.dry_run and destination.referrers(repository, digest) is None:
        tag = referrers_tag(digest)
        if destination.resolve(repository, tag) != listed.digest:
            destination.put_manifest(repository, tag, listed)
    return brought


def referrers_tag(digest: str) -> str:
    """The tag of what refers to the digest, in a registry that keeps no list of it."""
    return digest.replace(":", "-")
