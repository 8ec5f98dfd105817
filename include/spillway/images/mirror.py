"""Copies of images from one registry to another by digest."""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from spillway.errors import Missing, PreconditionFailed
from spillway.images.platforms import only_platforms
from spillway.images.transfer import BlobMover
from spillway.registries.base import Descriptor, ImageRegistry, Manifest
from spillway.registries.content import INDEX_MEDIA_TYPES, blobs, children
from spillway.registries.digest import is_digest, label

log = logging.getLogger(__name__)

RETRY_PAUSES_SECONDS = (0.2, 1.0, 3.0)
"""Pauses before a manifest is put again whose content another copy is storing at this very moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReport:
    """What one mirroring found and moved; with ``dry_run``, what it would move.

    ``digest`` is what the destination has; ``source_digest`` is the other one of the source where platforms were left
    out on the way. ``conflict`` is the digest that the tag already has at the destination where that is another one:
    the image is there by its digest all the same, the tag was left alone.
    """

    repository: str
    reference: str
    digest: str
    source_digest: str | None = None
    manifests_copied: int = 0
    blobs_present: int = 0
    blobs_mounted: int = 0
    blobs_copied: int = 0
    bytes_copied: int = 0
    conflict: str | None = None
    dry_run: bool = False

    @property
    def moved(self) -> bool:
        """Whether the destination was not whole before."""
        return bool(self.manifests_copied or self.blobs_copied or self.blobs_mounted)


def mirror(
    source: ImageRegistry,
    destination: ImageRegistry,
    *,
    repository: str,
    reference: str,
    move_tag: bool = False,
    dry_run: bool = False,
    expect: Callable[[int], None] = lambda size_bytes: None,
) -> MirrorReport:
    """Make the image available at the destination under the same digest, moving only what is missing there.

    An index is copied whole: every platform, every attestation. The tag is written last, so a copy that is cut off is
    not visible and the next one goes on from its blobs.

    Args:
        reference: a tag or a digest of ``repository``.
        move_tag: let a tag that has another digest at the destination be overwritten.
        expect: as in ``BlobMover``.

    Raises:
        Missing: the source does not have the image, or not all of it.
        DigestMismatch: bytes of the source, or what the destination stored, are not what their digest promises.
    """
    digest = named_digest(source, repository, reference)
    with BlobMover(source, destination, repository, dry_run=dry_run, expect=expect) as mover:
        return mirror_digest(mover, reference, digest, move_tag=move_tag)


def mirror_digest(
    mover: BlobMover,
    reference: str,
    digest: str,
    *,
    manifest: Manifest | None = None,
    move_tag: bool = False,
    platforms: Collection[str] = (),
    news: bool = False,
) -> MirrorReport:
    """Bring the image of that digest to the mover's destination, and give it the tag where ``reference`` is one.

    Args:
        manifest: of that digest, where it was read already.
        platforms: ``os/architecture[/variant]``: of an index only these and what belongs to them; all where empty. The
            smaller index has a digest of its own, the same one at every run.
        news: the destination was just seen to have another image under the tag, or none.
    Raises:
        Missing, DigestMismatch: as ``mirror``.
        InvalidImage: an index without one of the platforms.
    """
    repository, destination = mover.repository, mover.destination
    top = only_platforms(manifest or mover.source.manifest(repository, digest), platforms)
    below = tuple(_below(mover.source, repository, top))
    brought = mover.bring(blobs_of([*below, top]))
    absent = mover.absent(below)
    # Whatever the tag is by now, it may be moved.
    moves = news and move_tag
    known = None if moves else destination.resolve(repository, reference if not is_digest(reference) else top.digest)
    conflict = known if known not in (None, top.digest) and not move_tag else None
    there = known == top.digest or (conflict is not None and not mover.absent([top]))
    if not mover.dry_run:
        for manifest in absent:
            _put_manifest(destination, repository, manifest.digest, manifest)
        if not there:
            goal = top.digest if conflict or is_digest(reference) else reference
            conflict = _put_top(destination, repository, goal, top) or conflict
    report = MirrorReport(
        repository=repository,
        reference=reference,
        digest=top.digest,
        source_digest=digest if digest != top.digest else None,
        manifests_copied=len(absent) + (not there),
        blobs_present=brought.present,
        blobs_mounted=brought.mounted,
        blobs_copied=brought.copied,
        bytes_copied=brought.bytes_copied,
        conflict=conflict,
        dry_run=mover.dry_run,
    )
    _log(mover.source, destination, report)
    return report


def image_tree(registry: ImageRegistry, repository: str, digest: str) -> Iterator[Manifest]:
    """The manifest and everything below it that is a manifest too, children first and each once."""
    top = registry.manifest(repository, digest)
    yield from _below(registry, repository, top)
    yield top


def _below(registry: ImageRegistry, repository: str, top: Manifest) -> Iterator[Manifest]:
    """Everything below the manifest that is a manifest too, children first and each once."""
    seen: set[str] = set()

    def walk(manifest: Manifest) -> Iterator[Manifest]:
        for child in children(manifest):
            if child.digest not in seen:
                seen.add(child.digest)
                found = registry.manifest(repository, child.digest)
                yield from walk(found)
                yield found

    return walk(top)


def tree_digests(registry: ImageRegistry, repository: str, reference: str) -> frozenset[str]:
    """The digests of the image and of every manifest below it; empty where the registry does not have it.

    Only indexes are read. What one lists counts, whether or not the registry still has it.

    Raises:
        InvalidImage, DigestMismatch: an index that cannot be read; nobody knows what is below it.
    """
    top = registry.describe(repository, reference)
    if top is None:
        return frozenset()
    found, ahead = {top.digest}, [top]
    while ahead:
        one = ahead.pop()
        if one.media_type not in INDEX_MEDIA_TYPES:
            continue
        with suppress(Missing):
            below = [c for c in children(registry.manifest(repository, one.digest)) if c.digest not in found]
            found.update(child.digest for child in below)
            ahead += below
    return frozenset(found)


def blobs_of(manifests: Iterable[Manifest]) -> Sequence[Descriptor]:
    """Every blob of the manifests, each once."""
    return list({blob.digest: blob for manifest in manifests for blob in blobs(manifest)}.values())


def named_digest(source: ImageRegistry, repository: str, reference: str) -> str:
    """The digest that a tag or digest stands for; raises Missing, which names the tags that there are."""
    digest = source.resolve(repository, reference)
    if digest is not None:
        return digest
    tags = source.tags(repository)
    fix = f"its tags: {', '.join(tags[-20:])}" if tags else f"repository '{repository}' has no tags there"
    close = difflib.get_close_matches(reference, tags, n=1)
    fix += f". Did you mean '{close[0]}'?" if close else ""
    raise Missing("image", label(repository, reference), source.name, fix=fix)


def _put_top(destination: ImageRegistry, repository: str, reference: str, manifest: Manifest) -> str | None:
    """Store the manifest that the others belong to; the digest that its tag keeps where the registry says so."""
    try:
        _put_manifest(destination, repository, reference, manifest)
    except PreconditionFailed:
        known = destination.resolve(repository, reference)
        if known is None:
            raise
        if known != manifest.digest:
            _put_manifest(destination, repository, manifest.digest, manifest)
            return known
    return None


def _put_manifest(destination: ImageRegistry, repository: str, reference: str, manifest: Manifest) -> None:
    for pause in RETRY_PAUSES_SECONDS:
        try:
            return destination.put_manifest(repository, reference, manifest)
        except Missing:
            time.sleep(pause)
    return destination.put_manifest(repository, reference, manifest)


def _log(source: ImageRegistry, destination: ImageRegistry, report: MirrorReport) -> None:
    log.info(
        "image %s (%s) from %s to %s%s: %d blobs, %d bytes copied, %d there already%s",
        label(report.repository, report.reference),
        report.digest,
        source.name,
        destination.name,
        " (dry run)" if report.dry_run else "",
        report.blobs_copied,
        report.bytes_copied,
        report.blobs_present,
        f"; its tag stays at {report.conflict}" if report.conflict else "",
    )
