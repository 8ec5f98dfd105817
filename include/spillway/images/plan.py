"""What a mirroring will do to each tag of a repository, decided before anything is done."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from spillway.images.reference import ImageReference
from spillway.model import DELETE_SHARE_MAX, MirroredRepository
from spillway.sync.plan import guard_deletes

_ATTACHED = re.compile(r"sha256-(?P<digest>[0-9a-f]{64})(\.(sig|att|sbom))?")
"""Tags that belong to another image: cosign's, and those of a registry that lists no referrers."""


class TagAction(StrEnum):
    COPY = "copy"
    KEEP = "keep"
    CONFLICT = "conflict"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTag:
    """One tag's action and why; a side that does not have the tag is None."""

    tag: str
    action: TagAction
    reason: str
    source_digest: str | None = None
    destination_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TagChoice:
    """Which tags of a listing are meant: by pattern, with the digest that they belong to, and why others are not."""

    wanted: tuple[str, ...]
    attached: Mapping[str, str]
    skipped: Mapping[str, str]


def choose_tags(tags: Collection[str], rules: MirroredRepository) -> TagChoice:
    """The tags that the rules want; what belongs to an image is wanted with it, whatever its own name."""
    wanted: list[str] = []
    attached: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for tag in sorted(tags):
        subject = attached_to(tag)
        if not ImageReference.is_tag(tag):
            skipped[tag] = "is no name that a tag may have, and nobody can ask for it"
        elif subject is not None and rules.signatures:
            attached[tag] = subject
        elif subject is not None:
            skipped[tag] = "belongs to another image, and its rule leaves signatures out"
        elif any(fnmatchcase(tag, pattern) for pattern in rules.exclude):
            skipped[tag] = "matches a pattern that is left out"
        elif not any(fnmatchcase(tag, pattern) for pattern in rules.tags):
            skipped[tag] = "matches none of the wanted patterns"
        else:
            wanted.append(tag)
    return TagChoice(wanted=tuple(wanted), attached=attached, skipped=skipped)


def attached_to(tag: str) -> str | None:
    """The digest that a tag of a signature, an attestation or an SBOM belongs to; None for a tag of its own."""
    found = _ATTACHED.fullmatch(tag)
    return f"sha256:{found['digest']}" if found else None


def plan_tags(
    source: Mapping[str, str],
    destination: Mapping[str, str],
    rules: MirroredRepository,
    *,
    unproven: Collection[str] = (),
    only_there: Collection[str] = (),
    delete_share_max: float = DELETE_SHARE_MAX,
) -> tuple[PlannedTag, ...]:
    """One action for each wanted tag, and for each that is only at the destination.

    ==============================  ==========================================================================
    at the destination              action
    ==============================  ==========================================================================
    nothing                         copy
    the same digest                 keep; copy what may be missing of one in ``unproven``
    another digest                  conflict; copy where the tag may be moved, or is of fewer platforms there
    only there                      keep; delete where the rules say so and the guard allows it
    ==============================  ==========================================================================

    Args:
        source: the digest of each wanted tag.
        destination: the same of those that are there.
        unproven: tags whose digest alone does not show that all of the image is there.
        only_there: tags of the destination that the rules mean and the source does not list.
        delete_share_max: as ``share_max`` of ``guard_deletes``.
    Raises:
        DeletesRefused: the source lists no tag, or more would be deleted than the guard allows.
    """
    planned = [_decide(tag, digest, destination.get(tag), rules, tag in unproven) for tag, digest in source.items()]
    if rules.delete:
        at_destination = len(destination) + len(only_there)
        guard_deletes(
            len(only_there),
            at_source=len(source),
            at_destination=at_destination,
            share_max=delete_share_max,
            things="tags",
        )
    action = TagAction.DELETE if rules.delete else TagAction.KEEP
    reason = "the source no longer has it" if rules.delete else "only at the destination; deleting is off"
    planned += [PlannedTag(tag=tag, action=action, reason=reason) for tag in only_there]
    return tuple(sorted(planned, key=lambda one: one.tag))


def _decide(tag: str, digest: str, there: str | None, rules: MirroredRepository, unproven: bool) -> PlannedTag:
    def act(action: TagAction, reason: str) -> PlannedTag:
        return PlannedTag(tag=tag, action=action, reason=reason, source_digest=digest, destination_digest=there)

    if there is None:
        return act(TagAction.COPY, "not at the destination")
    if there == digest:
        if unproven:
            return act(TagAction.COPY, "the same digest; what may be missing below it is looked for")
        return act(TagAction.KEEP, "the same digest")
    if rules.platforms:
        return act(TagAction.COPY, "another digest, which fewer platforms may explain")
    if rules.move_tags:
        return act(TagAction.COPY, f"moves from {there}")
    return act(TagAction.CONFLICT, f"is {there} at the destination, and the rules move no tag")
