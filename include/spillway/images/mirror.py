"""Copies of images from one registry to another by digest, and the gate that no pod starts without one."""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from spillway.errors import DigestMismatch, LaunchRefused, Missing, PreconditionFailed
from spillway.images.transfer import PARALLEL_BLOBS, copy_blobs
from spillway.registries.base import ImageRegistry, Manifest
from spillway.registries.content import Descriptor, blobs, children
from spillway.registries.digest import is_digest, label

log = logging.getLogger(__name__)

RETRY_PAUSES_SECONDS = (0.2, 1.0, 3.0)
"""Pauses before a manifest is put again whose content another copy is storing at this very moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorReport:
    """What one mirroring found and moved; with ``dry_run``, what it would move.

    ``conflict`` is the digest that the tag already has at the destination where that is another one: the image is
    there by its digest all the same, the tag was left alone.
    """

    repository: str
    reference: str
    digest: str
    manifests_copied: int = 0
    blobs_present: int = 0
    blobs_copied: int = 0
    bytes_copied: int = 0
    conflict: str | None = None
    dry_run: bool = False


def mirror(
    source: ImageRegistry,
    destination: ImageRegistry,
    *,
    repository: str,
    reference: str,
    move_tag: bool = False,
    dry_run: bool = False,
) -> MirrorReport:
    """Make the image available at the destination under the same digest, moving only what is missing there.

    An index is copied whole: every platform, every attestation. The tag is written last, so a copy that is cut off is
    not visible and the next one goes on from its blobs.

    Args:
        reference: a tag or a digest of ``repository``.
        move_tag: let a tag that has another digest at the destination be overwritten.

    Raises:
        Missing: the source does not have the image, or not all of it.
        DigestMismatch: bytes of the source, or what the destination stored, are not what their digest promises.
    """
    digest = _resolve(source, repository, reference)
    tree = tuple(image_tree(source, repository, digest))
    missing = _missing(destination, repository, tree)
    conflict = None if move_tag else _other_digest(destination, repository, reference, digest)
    report = MirrorReport(
        repository=repository,
        reference=reference,
        digest=digest,
        manifests_copied=len(missing.manifests),
        blobs_present=missing.blobs_present,
        blobs_copied=len(missing.blobs),
        bytes_copied=sum(blob.size_bytes for blob in missing.blobs),
        conflict=conflict,
        dry_run=dry_run,
    )
    if dry_run:
        return report
    copy_blobs(source, destination, repository, missing.blobs)
    for manifest in missing.manifests:
        _put_manifest(destination, repository, manifest.digest, manifest)
    if conflict is None and not is_digest(reference):
        conflict = _tag(destination, repository, reference, tree[-1])
    _verify(destination, repository, digest if conflict else reference, digest)
    done = replace(report, conflict=conflict)
    _log(source, destination, done)
    return done


def require_image(registry: ImageRegistry, repository: str, digest: str) -> None:
    """Return when a pod at the registry's site can be started from the digest: all of it is there.

    Raises:
        LaunchRefused: the registry does not hold the manifest, one of its children or one of its blobs.
    """
    name = label(repository, digest)
    if not is_digest(digest):
        raise LaunchRefused(f"image '{name}' is not given by digest; resolve its tag before the launch")
    if registry.resolve(repository, digest) is None:
        raise LaunchRefused(f"image '{name}' is not in {registry.name}; mirror it to that registry, then launch")
    try:
        missing = _missing(registry, repository, tuple(image_tree(registry, repository, digest)))
        absent = [blob.digest for blob in missing.blobs]
    except Missing as problem:
        absent = [problem.name]
    if absent:
        raise LaunchRefused(
            f"image '{name}' is not whole in {registry.name}: {', '.join(absent)} is missing; mirror it again"
        )


def image_tree(registry: ImageRegistry, repository: str, digest: str) -> Iterator[Manifest]:
    """The manifest and everything below it that is a manifest too, children first and each once."""
    seen: set[str] = set()

    def walk(wanted: str) -> Iterator[Manifest]:
        if wanted in seen:
            return
        seen.add(wanted)
        manifest = registry.manifest(repository, wanted)
        for child in children(manifest):
            yield from walk(child.digest)
        yield manifest

    return walk(digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    """What a registry lacks of an image; manifests in the order in which they may be stored."""

    manifests: tuple[Manifest, ...]
    blobs: tuple[Descriptor, ...]
    blobs_present: int


def _missing(registry: ImageRegistry, repository: str, tree: Sequence[Manifest]) -> _Missing:
    needed = list({blob.digest: blob for manifest in tree for blob in blobs(manifest)}.values())
    with ThreadPoolExecutor(PARALLEL_BLOBS) as threads:
        stored = list(threads.map(lambda blob: registry.has_blob(repository, blob.digest), needed))
        known = list(threads.map(lambda manifest: registry.resolve(repository, manifest.digest), tree))
    return _Missing(
        manifests=tuple(manifest for manifest, digest in zip(tree, known, strict=True) if digest is None),
        blobs=tuple(blob for blob, there in zip(needed, stored, strict=True) if not there),
        blobs_present=sum(stored),
    )


def _resolve(source: ImageRegistry, repository: str, reference: str) -> str:
    digest = source.resolve(repository, reference)
    if digest is not None:
        return digest
    tags = source.tags(repository)
    fix = f"its tags: {', '.join(tags[-20:])}" if tags else f"repository '{repository}' has no tags there"
    close = difflib.get_close_matches(reference, tags, n=1)
    fix += f". Did you mean '{close[0]}'?" if close else ""
    raise Missing("image", label(repository, reference), source.name, fix=fix)


def _other_digest(destination: ImageRegistry, repository: str, reference: str, digest: str) -> str | None:
    """The digest of the tag at the destination where it is another one than the image's."""
    if is_digest(reference):
        return None
    known = destination.resolve(repository, reference)
    return None if known == digest else known


def _tag(destination: ImageRegistry, repository: str, tag: str, manifest: Manifest) -> str | None:
    """Set the tag; the digest that it has instead where the registry does not let it be moved."""
    if destination.resolve(repository, tag) == manifest.digest:
        return None
    try:
        _put_manifest(destination, repository, tag, manifest)
    except PreconditionFailed:
        known = destination.resolve(repository, tag)
        if known is None:
            raise
        return None if known == manifest.digest else known
    return None


def _put_manifest(destination: ImageRegistry, repository: str, reference: str, manifest: Manifest) -> None:
    for pause in RETRY_PAUSES_SECONDS:
        try:
            return destination.put_manifest(repository, reference, manifest)
        except Missing:
            time.sleep(pause)
    return destination.put_manifest(repository, reference, manifest)


def _verify(destination: ImageRegistry, repository: str, reference: str, digest: str) -> None:
    seen = destination.resolve(repository, reference)
    if seen != digest:
        what = f"image {label(repository, reference)} in {destination.name} after its copy"
        raise DigestMismatch(what, expected=digest, seen=seen or "nothing")


def _log(source: ImageRegistry, destination: ImageRegistry, report: MirrorReport) -> None:
    log.info(
        "image %s (%s) from %s to %s: %d blobs, %d bytes copied, %d there already%s",
        label(report.repository, report.reference),
        report.digest,
        source.name,
        destination.name,
        report.blobs_copied,
        report.bytes_copied,
        report.blobs_present,
        f"; its tag stays at {report.conflict}" if report.conflict else "",
    )
