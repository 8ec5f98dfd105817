"""All wanted tags of a repository from one registry to another."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spillway.errors import AccessDenied, SpillwayError, Unreachable
from spillway.images.mirror import MirrorReport, mirror
from spillway.images.reference import is_tag
from spillway.registries.base import ImageRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryReport:
    """What became of each tag; the reasons are by tag. One tag that fails keeps no other from being mirrored."""

    repository: str
    mirrored: tuple[MirrorReport, ...]
    skipped: Mapping[str, str]
    failed: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether every wanted tag is at the destination with its digest."""
        return not self.failed and not any(report.conflict for report in self.mirrored)

    @property
    def bytes_copied(self) -> int:
        return sum(report.bytes_copied for report in self.mirrored)


def mirror_repository(
    source: ImageRegistry,
    destination: ImageRegistry,
    *,
    repository: str,
    patterns: Sequence[str] = ("*",),
    destination_repository: str | None = None,
    mount_from: Sequence[str] = (),
    move_tags: bool = False,
    dry_run: bool = False,
) -> RepositoryReport:
    """Mirror the tags that match one of the shell patterns, each on its own.

    Raises:
        Unreachable, AccessDenied: one of the registries is not to be had, so no other tag would fare better.
    """
    mirrored: list[MirrorReport] = []
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for tag in source.tags(repository):
        reason = _skip_reason(tag, patterns)
        if reason is not None:
            skipped[tag] = reason
            continue
        try:
            report = mirror(
                source,
                destination,
                repository=repository,
                reference=tag,
                destination_repository=destination_repository,
                mount_from=mount_from,
                move_tag=move_tags,
                dry_run=dry_run,
            )
            mirrored.append(report)
        except (Unreachable, AccessDenied):
            raise
        except SpillwayError as problem:
            failed[tag] = str(problem)
    return RepositoryReport(repository=repository, mirrored=tuple(mirrored), skipped=skipped, failed=failed)


def _skip_reason(tag: str, patterns: Sequence[str]) -> str | None:
    if not is_tag(tag):
        return "no registry accepts this tag"
    if tag.startswith("sha256-"):
        return "belongs to another image (a signature or an attestation)"
    if not any(fnmatch.fnmatchcase(tag, pattern) for pattern in patterns):
        return "matches none of the wanted patterns"
    return None
