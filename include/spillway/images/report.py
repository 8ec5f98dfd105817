"""What a mirroring of a repository did, tag by tag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spillway.errors import MirrorIncomplete


class TagFate(StrEnum):
    """A failed tag may pass with the next mirroring; a refused or conflicting one needs somebody's decision."""

    COPIED = "copied"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    SKIPPED = "skipped"
    CONFLICT = "conflict"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagOutcome:
    """What became of one tag, and why.

    ``digest`` is what the destination has; ``source_digest`` is the other one of the source where platforms were left
    out on the way. ``retry_helps``: whether the next mirroring may do better by itself.
    """

    tag: str
    fate: TagFate
    reason: str
    digest: str | None = None
    source_digest: str | None = None
    blobs_copied: int = 0
    blobs_mounted: int = 0
    bytes_copied: int = 0
    retry_helps: bool = False

    @property
    def failed(self) -> bool:
        """Whether the destination does not have what the source has."""
        return self.fate in (TagFate.CONFLICT, TagFate.REFUSED, TagFate.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryReport:
    """Every tag once, ordered by name. Of a dry run these are the fates that the plan intends."""

    repository: str
    source: str
    destination: str
    dry_run: bool
    outcomes: tuple[TagOutcome, ...]

    @property
    def ok(self) -> bool:
        """Whether every wanted tag is at the destination with its digest."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """Tag and reason of every one that is not there as the source has it."""
        return tuple(f"{one.tag}: {one.reason}" for one in self.outcomes if one.failed)

    @property
    def bytes_copied(self) -> int:
        return sum(outcome.bytes_copied for outcome in self.outcomes)

    def count(self, fate: TagFate) -> int:
        return sum(outcome.fate is fate for outcome in self.outcomes)


def require_complete(report: RepositoryReport) -> None:
    """Return when every wanted tag is at the destination; raises MirrorIncomplete."""
    if not report.ok:
        retry_helps = any(outcome.retry_helps for outcome in report.outcomes)
        raise MirrorIncomplete(report.repository, report.destination, report.failures, retry_helps=retry_helps)


def summary(report: RepositoryReport) -> dict[str, Any]:
    """The counts of a report as plain data, with the first failures by name."""
    counts: Mapping[str, int] = {f"tags_{fate}": report.count(fate) for fate in TagFate}
    return {
        "repository": report.repository,
        "dry_run": report.dry_run,
        **counts,
        "bytes_copied": report.bytes_copied,
        "failures": list(report.failures[:10]),
    }
