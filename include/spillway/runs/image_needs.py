"""Which tags stay at a site although their home no longer has them: runs and jobs need their images there."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spillway.errors import ConfigError
from spillway.images.mirror import tree_digests
from spillway.images.plan import attached_to
from spillway.images.reference import ImageReference
from spillway.registries.base import ImageRegistry
from spillway.runs.services import Services


def needed_tags(
    services: Services, registry: ImageRegistry, repository: str, tags: Collection[str]
) -> Mapping[str, str]:
    """Those of the tags that stay at the registry, with the reason.

    Kept is what a job file names, and what an open or recent run was started from: its attempts go on from that digest
    wherever they go, and a cleared task does. While a job file cannot be read at all everything is kept.

    Raises:
        Unreachable, AccessDenied: the registry cannot say what a tag is.
    """
    if not tags:
        return {}
    try:
        needs = _named(services, repository) | _trained(services, registry, repository)
    except ConfigError as problem:
        return dict.fromkeys(tags, f"a job may name it, nobody knows until this is repaired: {problem}")
    means = {tag: (tag, registry.resolve(repository, tag), attached_to(tag)) for tag in tags}
    found = {tag: [needs[one] for one in known if one and one in needs] for tag, known in means.items()}
    return {tag: reasons[0] for tag, reasons in found.items() if reasons}


def _named(services: Services, repository: str) -> dict[str, str]:
    """The tags and digests of the repository that job files name."""
    uses = [(use.job, ImageReference.parse(use.image)) for use in services.image_uses()]
    return {image.reference: f"job '{job}' names it" for job, image in uses if image.repository == repository}


def _trained(services: Services, registry: ImageRegistry, repository: str) -> dict[str, str]:
    """The digests of the repository that open and recent runs need: their images and all that is below those."""
    return {
        digest: f"run '{attempt.run}' is open or ended a short while ago, and was started from it"
        for recent in services.recent_attempts()
        if ImageReference.parse(recent.job.image).repository == repository
        for attempt in services.ledger.attempts(recent.run)
        if attempt.image_digest is not None
        for digest in tree_digests(registry, repository, attempt.image_digest)
    }
