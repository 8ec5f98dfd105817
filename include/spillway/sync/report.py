"""What a sync did: each object's outcome as it comes, and the counts of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from spillway.sync.compare import SETTLED
from spillway.sync.rows import Row, Rows

FAILURES_NAMED = 10

BARRED = "may not leave: "
"""How the reason of a refused object begins whose tags keep it at its source, or cannot be read."""


class ObjectFate(StrEnum):
    """A failed object may pass with the next sync; a refused one will not, unless somebody changes something."""

    COPIED = "copied"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    REFUSED = "refused"
    FAILED = "failed"


class ObjectOutcome(NamedTuple):
    """What became of one object, and why; of a dry run, what would."""

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
    """How many objects met which fate, each object once; ``failures`` are the first ones, with their reasons.

    ``objects_withheld`` counts those of the source that may not leave it; they have no fate, and are named nowhere.
    ``objects_barred`` counts those among the refused whose tags keep them at the source, or cannot be read.
    ``listed_destination`` is False where the record of the last verified sync stood in for the destination's listing.
    """

    dataset: str
    source: str
    destination: str
    dry_run: bool
    listed_destination: bool
    counts: Mapping[ObjectFate, int]
    bytes_copied: int
    failures: tuple[str, ...]
    objects_withheld: int = 0
    objects_barred: int = 0

    @classmethod
    def at_home(cls, dataset: str, site: str, *, dry_run: bool) -> SyncReport:
        """Of a dataset whose home the site is: nothing is looked at."""
        return cls(
            dataset=dataset,
            source=site,
            destination=site,
            dry_run=dry_run,
            listed_destination=False,
            counts={},
            bytes_copied=0,
            failures=(),
        )

    @property
    def ok(self) -> bool:
        """Whether the dataset is whole at the destination."""
        return not self.failures

    @property
    def objects_copied(self) -> int:
        return self.count(ObjectFate.COPIED)

    @property
    def objects_unchanged(self) -> int:
        return self.count(ObjectFate.UNCHANGED)

    def count(self, fate: ObjectFate) -> int:
        return self.counts.get(fate, 0)


class Tally:
    """Counts outcomes as they come; with ``keep`` it can give them back, the unchanged ones with ``keep_unchanged``."""

    def __init__(self, *, keep: bool = False, keep_unchanged: bool = True) -> None:
        self.counts: Counter[ObjectFate] = Counter()
        self.bytes_copied = self.objects_barred = 0
        self.failures: list[str] = []
        self._kept = Rows() if keep else None
        self._kept_unchanged = self._kept if keep_unchanged else None

    def note(self, outcome: ObjectOutcome) -> None:
        """One more object has its outcome."""
        key, fate, reason, size_bytes = outcome
        self.counts[fate] += 1
        if fate is ObjectFate.COPIED:
            self.bytes_copied += size_bytes
        elif fate is not ObjectFate.UNCHANGED and outcome.failed:
            self.objects_barred += reason.startswith(BARRED)
            if len(self.failures) < FAILURES_NAMED:
                self.failures.append(f"{key}: {reason}")
        kept = self._kept_unchanged if fate is ObjectFate.UNCHANGED else self._kept
        if kept is not None:
            kept.add((key, fate.value, reason, size_bytes))

    def note_settled(self, row: Row) -> None:
        """One more is as the last verified sync left it; its row begins with the key and the bytes."""
        self.counts[ObjectFate.UNCHANGED] += 1
        if self._kept_unchanged is not None:
            self._kept_unchanged.add((row[0], ObjectFate.UNCHANGED.value, SETTLED, row[1]))

    def outcomes(self) -> Iterator[ObjectOutcome]:
        """Every outcome that was kept, in the order of keys."""
        for key, fate, reason, size_bytes in self._kept or ():
            yield ObjectOutcome(key, ObjectFate(fate), reason, size_bytes)


def summary(report: SyncReport) -> dict[str, Any]:
    """The counts of a report as plain data, with the first failures by name."""
    return {
        "dataset": report.dataset,
        "dry_run": report.dry_run,
        **{f"objects_{fate}": report.count(fate) for fate in ObjectFate},
        "objects_withheld": report.objects_withheld,
        "objects_barred": report.objects_barred,
        "bytes_copied": report.bytes_copied,
        "listed_destination": report.listed_destination,
        "failures": list(report.failures),
    }
