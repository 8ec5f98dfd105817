"""What a sync did, object by object."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ObjectFate(StrEnum):
    COPIED = "copied"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOutcome:
    """What became of one object, and why."""

    key: str
    fate: ObjectFate
    reason: str
    size_bytes: int

    @property
    def failed(self) -> bool:
        """Whether the destination lacks this object's present version (or still has what was to be deleted)."""
        return self.fate in (ObjectFate.FAILED, ObjectFate.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """Every object once, ordered by key. Of a dry run these are the fates that the plan intends."""

    dataset: str
    source: str
    destination: str
    dry_run: bool
    outcomes: tuple[ObjectOutcome, ...]

    @property
    def ok(self) -> bool:
        """Whether the dataset is whole at the destination."""
        return not any(outcome.failed for outcome in self.outcomes)

    @property
    def objects_copied(self) -> int:
        return self.count(ObjectFate.COPIED)

    @property
    def objects_unchanged(self) -> int:
        return self.count(ObjectFate.UNCHANGED)

    @property
    def bytes_copied(self) -> int:
        return sum(outcome.size_bytes for outcome in self.outcomes if outcome.fate is ObjectFate.COPIED)

    def count(self, fate: ObjectFate) -> int:
        return sum(outcome.fate is fate for outcome in self.outcomes)


def summary(report: SyncReport) -> dict[str, Any]:
    """The counts of a report as plain data, with the first failures by name."""
    failures = [f"{outcome.key}: {outcome.reason}" for outcome in report.outcomes if outcome.failed]
    return {
        "dataset": report.dataset,
        "dry_run": report.dry_run,
        **{f"objects_{fate}": report.count(fate) for fate in ObjectFate},
        "bytes_copied": report.bytes_copied,
        "failures": failures[:10],
    }
