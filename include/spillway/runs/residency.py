"""Which tier counts: of a dataset at a site, and which images are core whoever asks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from spillway.errors import ConfigError, DigestMismatch, InvalidImage
from spillway.images.mirror import tree_digests
from spillway.images.reference import ImageReference
from spillway.images.sides import PARALLEL_TAGS
from spillway.model import Cluster, Dataset, ImageUse, Tier
from spillway.registries.base import ImageRegistry
from spillway.runs.services import Services
from spillway.sync.leaving import TagRules
from spillway.threads import worker_threads

_OWN_IMAGE = (
    "give the other job an image of its own (another tag is the same bytes), or run it where core may be stored"
)


def limited_to(part: Tier | None, site: Cluster) -> Cluster:
    """The site as one that may store nothing of a dataset but that part of it; as it is where all of it is meant."""
    return site if part is None or not site.may_hold(part) else replace(site, residency=frozenset({part}))


def movable_tier(dataset: Dataset, site: Cluster) -> Tier:
    """The strictest tier of its objects that the site may store; where it may store none, the dataset's strictest."""
    allowed = {tier for tier in dataset.tiers if site.may_hold(tier)}
    return Tier.PUBLIC if allowed == {Tier.PUBLIC} else dataset.strictest


def admits(dataset: Dataset, site: Cluster) -> Callable[[str], bool]:
    """Whether the object of a key may be stored at the site, for all that its key tells; ``tag_rules`` tells the rest.

    Where all of the dataset may be stored, what is of it may.
    """
    if all(site.may_hold(tier) for tier in dataset.tiers):
        return lambda key: key.startswith(dataset.prefix)
    tagged = dataset.asks_tags if site.may_hold(Tier.PUBLIC) and dataset.has_tag_rules else lambda key: False
    return lambda key: site.may_hold(dataset.tier_of(key)) or tagged(key)


def tag_rules(dataset: Dataset, site: Cluster) -> TagRules | None:
    """What the tags of its objects must say before they may be stored at the site; None where they are not asked."""
    if site.may_hold(Tier.CORE) or not dataset.has_tag_rules:
        return None
    return TagRules(decide=dataset.asks_tags, allow=lambda key, tags: site.may_hold(dataset.tier_of(key, tags)))


def core_images(services: Services, images: Collection[str]) -> Mapping[str, str]:
    """Those of the images that count as core whoever asks for them, with the reason and what can be done about it.

    What is made from core data is core, and an image may be made from the data of any job that uses its bytes. A job
    file that cannot be read at all may be of such a job: until it is repaired every image counts as core.

    Raises:
        SpillwayError: the home of images cannot say which bytes a name stands for.
    """
    try:
        uses = [use for use in services.image_uses() if use.tier is Tier.CORE]
    except ConfigError as problem:
        return dict.fromkeys(images, f"a job of core data may use it, nobody knows until this is repaired: {problem}")
    users = image_users(services, images, uses)
    return {image: _why_core(using) for image, using in users.items() if using}


def _why_core(using: Sequence[ImageUse]) -> str:
    """Why an image is core: for a job that says so, if there is one; otherwise the file and the line that it lacks."""
    use = min(using, key=lambda use: use.unclear_in is not None)
    if use.unclear_in is None:
        return f"job '{use.job}' of core data uses it; {_OWN_IMAGE}"
    problem, fix = unclear_tier(use)
    return f"job '{use.job}' uses it, and its job file {use.unclear_in} {problem}; {fix}"


def unclear_tier(use: ImageUse) -> tuple[str, str]:
    """Why a job file does not say clearly of which tier its data is, and what to do about it."""
    if use.mistake is not None:
        return f"has a mistake, so its data counts as core: {use.mistake}", "correct it"
    problem = "says neither `tier:` nor a declared dataset, so its data counts as core"
    return problem, "add the line `tier: public` to it if none of its data is core, `tier: core` otherwise"


def image_users(
    services: Services, images: Collection[str], uses: Collection[ImageUse]
) -> Mapping[str, tuple[ImageUse, ...]]:
    """Those of the uses that are of each image: its name, or its bytes by whatever name.

    An index and the images below it are the same bytes: whoever copies one copies the other.

    Raises:
        SpillwayError: the home of images cannot say which bytes the name of a use stands for.
    """
    users = {image: tuple(use for use in uses if use.image == image) for image in images}
    unnamed = [image for image, named in users.items() if uses and not named]
    if not unnamed:
        return users
    identity = cache(partial(_identity, services.site(services.image_home).registry))

    def using(image: str) -> tuple[ImageUse, ...]:
        try:
            own = identity(image)
        except (InvalidImage, DigestMismatch):  # nobody can copy it, and whoever tries is told why
            own = frozenset({_name(image)})
        return tuple(use for use in uses if not own.isdisjoint(identity(use.image)))

    with worker_threads(PARALLEL_TAGS, "image") as threads:
        return users | dict(zip(unnamed, threads.map(using, unnamed), strict=True))


def _identity(home: ImageRegistry, image: str) -> frozenset[str]:
    """The digests of the image and of all that is below it; its name where its home does not have it."""
    reference = ImageReference.parse(image)
    return tree_digests(home, reference.repository, reference.reference) or frozenset({_name(image)})


def _name(image: str) -> str:
    return ImageReference.parse(image).digest or image
