"""All wanted tags of a repository from one registry to another; one that fails keeps no other from being mirrored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from spillway.errors import Missing, SpillwayError
from spillway.images.deleting import delete_tags, holders
from spillway.images.mirror import MirrorReport, image_tree, mirror_digest
from spillway.images.plan import PlannedTag, TagAction, TagChoice, choose_tags, plan_tags
from spillway.images.referrers import bring_referrers, referrers_tag
from spillway.images.report import RepositoryReport, TagFate, TagOutcome
from spillway.images.sides import PARALLEL_TAGS, Seen, Sides
from spillway.images.transfer import BlobMover
from spillway.model import DELETE_SHARE_MAX, MirroredRepository
from spillway.registries.base import Descriptor, ImageRegistry, Manifest
from spillway.registries.content import INDEX_MEDIA_TYPES
from spillway.threads import worker_threads

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryPlan:
    """What is to be done to each tag; ``settled`` are those of which the outcome is known already.

    ``manifests`` are those that were read, by digest.
    """

    rules: MirroredRepository
    tags: tuple[PlannedTag, ...]
    settled: tuple[TagOutcome, ...]
    manifests: Mapping[str, Manifest]

    @property
    def changes(self) -> bool:
        """Whether anything may have to be copied or is to be deleted."""
        return any(one.action in (TagAction.COPY, TagAction.DELETE) for one in self.tags)

    @property
    def doomed(self) -> tuple[str, ...]:
        """The tags that are to be deleted."""
        return tuple(one.tag for one in self.tags if one.action is TagAction.DELETE)

    def keeping(self, needed: Mapping[str, str]) -> RepositoryPlan:
        """The same plan, but these tags are not deleted, for the reasons that are given."""
        kept = {
            one.tag: replace(one, action=TagAction.KEEP, reason=needed[one.tag])
            for one in self.tags
            if one.tag in needed
        }
        return replace(self, tags=tuple(kept.get(one.tag, one) for one in self.tags))


def plan_repository(
    source: ImageRegistry,
    destination: ImageRegistry,
    rules: MirroredRepository,
    *,
    verify: bool = False,
    delete_share_max: float = DELETE_SHARE_MAX,
) -> RepositoryPlan:
    """Look at both registries and decide what is to be done to each tag.

    Args:
        verify: look below every tag for what may be missing, not only where its digest leaves that open.
        delete_share_max: as in ``plan_tags``.
    Raises:
        Missing: the source has no such repository.
        DeletesRefused: more would be deleted than the guard allows.
        Unreachable, AccessDenied: one of the registries gives no list of its tags.
    """
    with worker_threads(2 * PARALLEL_TAGS, "tag") as threads:
        sides = Sides(threads, source, destination, rules.repository)
        listed, listed_there = sides.tags()
        if not listed and not rules.delete:
            fix = "push a tag there, or correct its name in images.yaml"
            raise Missing("repository", rules.repository, source.name, fix=fix)
        chosen = choose_tags(listed, rules)
        found = sides.look(chosen.wanted, listed_there)
        belonging = _belonging(source, rules.repository, chosen, found)
        found |= sides.look(belonging, listed_there)
    only_there = _only_there(source, destination, rules, listed, listed_there)
    tags = plan_tags(
        {tag: here.digest for tag, (here, _) in found.items() if isinstance(here, Descriptor)},
        {tag: there.digest for tag, (_, there) in found.items() if isinstance(there, Descriptor)},
        rules,
        unproven={tag for tag, (here, _) in found.items() if verify or _is_index(here)},
        only_there=sorted(only_there),
        delete_share_max=delete_share_max,
    )
    skipped = dict(chosen.skipped)
    skipped |= dict.fromkeys(set(chosen.attached) - set(belonging), "belongs to an image that is not mirrored")
    settled = [TagOutcome(tag=tag, fate=TagFate.SKIPPED, reason=reason) for tag, reason in skipped.items()]
    settled += [_failed(tag, problem) for tag, sight in found.items() if (problem := _problem(tag, sight, source))]
    broken = {outcome.tag for outcome in settled}
    return RepositoryPlan(
        rules=rules,
        tags=tuple(one for one in tags if one.tag not in broken),
        settled=tuple(settled),
        manifests=sides.manifests,
    )


def _only_there(
    source: ImageRegistry,
    destination: ImageRegistry,
    rules: MirroredRepository,
    listed: Collection[str],
    listed_there: Collection[str],
) -> set[str]:
    """The tags that the rules mean and that only the destination has.

    Where they are deleted, none that belongs to an image at the source or to one that stays: signatures that the
    source only lists have a tag at the destination, and others are made there.
    """
    meant = choose_tags(listed_there, rules)
    wanted = set(meant.wanted) - set(listed)
    attached = {tag: subject for tag, subject in meant.attached.items() if tag not in listed}
    if rules.delete:
        attached = {tag: one for tag, one in attached.items() if source.resolve(rules.repository, one) is None}
    if rules.delete and attached:
        staying = holders(destination, rules.repository, set(listed_there) - wanted - set(attached))
        attached = {tag: subject for tag, subject in attached.items() if subject not in staying}
    return wanted | set(attached)


def _belonging(
    source: ImageRegistry, repository: str, chosen: TagChoice, found: Mapping[str, tuple[Seen, Seen]]
) -> list[str]:
    """The attached tags that belong to an image that is mirrored, or to one below it."""
    images = [here for here, _ in found.values() if isinstance(here, Descriptor)]
    digests = {image.digest for image in images}
    if set(chosen.attached.values()) - digests:
        for image in images:
            if _is_index(image):
                digests |= _below(source, repository, image.digest)
    return [tag for tag, subject in chosen.attached.items() if subject in digests]


def _below(source: ImageRegistry, repository: str, digest: str) -> set[str]:
    """The digests of an index's manifests; of one that cannot be read none, which its own tag is told for."""
    try:
        return {manifest.digest for manifest in image_tree(source, repository, digest)}
    except SpillwayError:
        return set()


def _is_index(seen: Seen) -> bool:
    return isinstance(seen, Descriptor) and seen.media_type in INDEX_MEDIA_TYPES


def _problem(tag: str, sight: tuple[Seen, Seen], source: ImageRegistry) -> SpillwayError | None:
    here, there = sight
    if here is None:
        return Missing("tag", tag, source.name, fix="it was listed there and is gone, or its manifest is")
    return next((seen for seen in (here, there) if isinstance(seen, SpillwayError)), None)


def _failed(tag: str, problem: SpillwayError) -> TagOutcome:
    return TagOutcome(tag=tag, fate=TagFate.FAILED, reason=str(problem), retry_helps=problem.retry_helps)


def mirror_tags(
    source: ImageRegistry,
    destination: ImageRegistry,
    plan: RepositoryPlan,
    *,
    refused: Mapping[str, str],
    siblings: Collection[str] = (),
    dry_run: bool = False,
    expect: Callable[[int], None] = lambda size_bytes: None,
) -> RepositoryReport:
    """Do what the plan says, each tag on its own. Nothing is deleted where a tag failed: what replaces it may lack.

    Args:
        refused: tags that may not go there, with the reason; nothing that refers to their images goes either.
        siblings: repositories of the destination that may have some of the blobs already.
        expect: as in ``BlobMover``.
    """
    rules = plan.rules
    outcomes = [*plan.settled, *(_known(planned) for planned in plan.tags if planned.action in _KNOWN)]
    copies = [planned for planned in plan.tags if planned.action is TagAction.COPY]
    withheld = [one.tag for one in copies if one.tag in refused]
    outcomes += [TagOutcome(tag=tag, fate=TagFate.REFUSED, reason=refused[tag]) for tag in withheld]
    with (
        BlobMover(source, destination, rules.repository, siblings=siblings, dry_run=dry_run, expect=expect) as mover,
        worker_threads(PARALLEL_TAGS, "tag") as threads,
    ):
        try:
            allowed = [planned for planned in copies if planned.tag not in refused]
            outcomes += threads.map(lambda planned: _copied(mover, planned, plan), allowed)
            if rules.signatures:
                outcomes += _referring(mover, threads, plan, {*refused, *(one.tag for one in outcomes if one.failed)})
        except BaseException:
            mover.end()
            raise
    if any(outcome.failed for outcome in outcomes):
        kept = "the source no longer has it; nothing is deleted in a run in which another tag fails"
        outcomes += [TagOutcome(tag=tag, fate=TagFate.UNCHANGED, reason=kept) for tag in plan.doomed]
    else:
        outcomes += delete_tags(destination, rules.repository, plan.doomed, dry_run=dry_run)
    report = RepositoryReport(
        repository=rules.repository,
        source=source.name,
        destination=destination.name,
        dry_run=dry_run,
        outcomes=tuple(sorted(outcomes, key=lambda one: one.tag)),
    )
    _log(report)
    return report


_KNOWN = {TagAction.KEEP: TagFate.UNCHANGED, TagAction.CONFLICT: TagFate.CONFLICT}


def _known(planned: PlannedTag) -> TagOutcome:
    """The outcome of a tag that nothing is done to."""
    fate = _KNOWN[planned.action]
    return TagOutcome(tag=planned.tag, fate=fate, reason=planned.reason, digest=planned.destination_digest)


def _copied(mover: BlobMover, planned: PlannedTag, plan: RepositoryPlan) -> TagOutcome:
    def copy() -> MirrorReport:
        assert planned.source_digest is not None
        return mirror_digest(
            mover,
            planned.tag,
            planned.source_digest,
            manifest=plan.manifests.get(planned.source_digest),
            move_tag=plan.rules.move_tags,
            platforms=plan.rules.platforms,
            news=planned.source_digest != planned.destination_digest and not plan.rules.platforms,
        )

    try:
        report = mover.patience.run(copy)
    except SpillwayError as problem:
        return _failed(planned.tag, problem)
    fate, reason = (TagFate.COPIED, planned.reason) if report.moved else (TagFate.UNCHANGED, "all of it is there")
    if report.conflict:
        fate, reason = TagFate.CONFLICT, f"is {report.conflict} at the destination, where no tag is moved"
    return TagOutcome(
        tag=planned.tag,
        fate=fate,
        reason=reason,
        digest=report.conflict or report.digest,
        source_digest=report.source_digest,
        blobs_copied=report.blobs_copied,
        blobs_mounted=report.blobs_mounted,
        bytes_copied=report.bytes_copied,
    )


def _referring(
    mover: BlobMover, threads: ThreadPoolExecutor, plan: RepositoryPlan, left_out: Collection[str]
) -> list[TagOutcome]:
    """What refers to the images that are at the destination now, where the source keeps lists of it."""
    images = sorted({one.source_digest for one in plan.tags if one.source_digest and one.tag not in left_out})
    first = _referrers(mover, images[0]) if images else None
    if first is None:
        return []
    found = [first, *threads.map(lambda digest: _referrers(mover, digest), images[1:])]
    return [outcome for outcome in found if outcome is not None and outcome.fate is not TagFate.UNCHANGED]


def _referrers(mover: BlobMover, digest: str) -> TagOutcome | None:
    """None where the source keeps no list."""
    tag = referrers_tag(digest)
    try:
        brought = mover.patience.run(lambda: bring_referrers(mover, digest))
    except SpillwayError as problem:
        return _failed(tag, problem)
    if brought is None:
        return None
    return TagOutcome(
        tag=tag,
        fate=TagFate.COPIED if brought else TagFate.UNCHANGED,
        reason=f"{len(brought)} that refer to {digest}",
        digest=digest,
        blobs_copied=sum(one.blobs_copied for one in brought),
        bytes_copied=sum(one.bytes_copied for one in brought),
    )


def _log(report: RepositoryReport) -> None:
    counts = ", ".join(f"{number} {fate}" for fate in TagFate if (number := report.count(fate)))
    log.info(
        "repository %s from %s to %s%s: %s; %d bytes copied",
        report.repository,
        report.source,
        report.destination,
        " (dry run)" if report.dry_run else "",
        counts or "no tags",
        report.bytes_copied,
    )
