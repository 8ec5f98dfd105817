"""Tags that are to go from a registry, some of which delete no tag without its image."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spillway.errors import RequestRefused, SpillwayError
from spillway.images.mirror import tree_digests
from spillway.images.report import TagFate, TagOutcome
from spillway.registries.base import ImageRegistry

REASON = "the source no longer has it"


def delete_tags(
    registry: ImageRegistry, repository: str, doomed: Collection[str], *, dry_run: bool
) -> list[TagOutcome]:
    """Delete the tags, each on its own; an image goes with them only where no tag that is to stay needs it."""
    if dry_run:
        return [TagOutcome(tag=tag, fate=TagFate.DELETED, reason=REASON) for tag in doomed]
    outcomes: list[TagOutcome] = []
    with_image: list[str] = []
    for tag in doomed:
        try:
            registry.delete(repository, tag)
        except RequestRefused:
            with_image.append(tag)
        except SpillwayError as problem:
            outcomes.append(_failed(tag, problem))
        else:
            outcomes.append(TagOutcome(tag=tag, fate=TagFate.DELETED, reason=REASON))
    return outcomes + (_delete_images(registry, repository, with_image) if with_image else [])


def _delete_images(registry: ImageRegistry, repository: str, doomed: Collection[str]) -> list[TagOutcome]:
    try:
        digests = {tag: registry.resolve(repository, tag) for tag in doomed}
        staying = holders(registry, repository, set(registry.tags(repository)) - set(doomed))
    except SpillwayError as problem:
        return [_failed(tag, problem) for tag in doomed]
    outcomes = []
    for tag in doomed:
        digest = digests[tag]
        if digest is not None and digest in staying:
            others = ", ".join(staying[digest][:3])
            reason = f"{registry.name} deletes no tag without its image, which belongs to the tag {others} too"
            outcomes.append(TagOutcome(tag=tag, fate=TagFate.CONFLICT, reason=reason, digest=digest))
            continue
        try:
            if digest is not None:
                registry.delete(repository, digest)
        except SpillwayError as problem:
            outcomes.append(_failed(tag, problem))
        else:
            outcomes.append(TagOutcome(tag=tag, fate=TagFate.DELETED, reason=REASON, digest=digest))
    return outcomes


def holders(registry: ImageRegistry, repository: str, tags: Collection[str]) -> Mapping[str, list[str]]:
    """Which of the tags need each digest: as their image, or below their index.

    Raises:
        InvalidImage, DigestMismatch: an index that cannot be read; nobody knows what it needs.
    """
    found: dict[str, list[str]] = {}
    for tag in sorted(tags):
        for digest in tree_digests(registry, repository, tag):
            found.setdefault(digest, []).append(tag)
    return found


def _failed(tag: str, problem: SpillwayError) -> TagOutcome:
    return TagOutcome(tag=tag, fate=TagFate.FAILED, reason=str(problem), retry_helps=problem.retry_helps)
