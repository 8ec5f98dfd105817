"""Take committed steps out of use as retention says, then delete what only they needed.

The order is that of a commit, backwards: the step leaves HEAD in one compare-and-set, then its manifest goes, then the
parts that no other step has. A crash in between leaves something to sweep and nothing that a reader misses. What the
step had measured stays: its manifest is kept under ``pruned/``, so that the loss curve of the run stays whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from spillway.checkpoints.head import move_head
from spillway.checkpoints.layout import CommittedStep, Head, manifest_key, pruned_key
from spillway.checkpoints.parts import at_once
from spillway.checkpoints.retention import StepRecord, keep, metric_of
from spillway.checkpoints.store import CheckpointStore
from spillway.checkpoints.sweep import PART_GRACE, SweepReport, sweep
from spillway.errors import NoValidCheckpoint
from spillway.model import CheckpointManifest, Retention

_log = logging.getLogger(__name__)

Pins = Callable[[Head], Iterable[CommittedStep]]
"""The steps of a HEAD that somebody needs: the ones that attempts resume from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What one prune did, or would do: the steps that were taken out, those that stay, and what was deleted."""

    pruned: tuple[CommittedStep, ...] = ()
    kept: tuple[CommittedStep, ...] = ()
    swept: SweepReport = field(default_factory=SweepReport)


def prune(
    checkpoints: CheckpointStore,
    retention: Retention,
    *,
    now: datetime,
    pins: Pins = lambda head: (),
    grace: timedelta = PART_GRACE,
    dry_run: bool = False,
) -> PruneReport:
    """Apply retention to the run's committed steps. The newest step and the newest valid one always stay.

    Valid is here what the store says to have, by size and sha256. Only where steps go and a single valid one would stay
    are its parts read back: the one that goes may be the last that is whole.

    Raises:
        CorruptCheckpoint, ForeignCheckpoint: HEAD, a committed manifest or a claim cannot be read; nothing is deleted.
        NoValidCheckpoint: no committed step has all its parts; nothing is deleted.
    """
    head = checkpoints.head()
    if head is None:
        return PruneReport()
    manifests = {entry: checkpoints.manifest(entry) for entry in head.committed}
    records = [_record(entry, manifest, retention.metric) for entry, manifest in manifests.items()]

    def kept_with(valid: Iterable[CommittedStep]) -> frozenset[CommittedStep]:
        return keep(records, retention, now, pinned={*pins(head), *valid})

    valid = _newest_valid(checkpoints, manifests)
    kept = kept_with(valid)
    if len(kept) < len(manifests):
        stay = {entry: manifest for entry, manifest in manifests.items() if entry in kept}
        if len(_newest_valid(checkpoints, stay, wanted=2)) < 2:
            valid = _newest_valid(checkpoints, manifests, read=True)
        kept = kept_with(valid)  # with the pins of this moment
    victims = tuple(entry for entry in head.committed if entry not in kept)
    if not dry_run:
        _take_out(checkpoints, victims)
    return PruneReport(
        pruned=victims,
        kept=tuple(entry for entry in head.committed if entry in kept),
        swept=sweep(checkpoints, now=now, grace=grace, dry_run=dry_run, gone=victims),
    )


def _record(entry: CommittedStep, manifest: CheckpointManifest, metric: str) -> StepRecord:
    return StepRecord(entry=entry, created_at=manifest.created_at, metric=metric_of(manifest.metrics, metric))


def _newest_valid(
    checkpoints: CheckpointStore,
    manifests: dict[CommittedStep, CheckpointManifest],
    *,
    wanted: int = 1,
    read: bool = False,
) -> tuple[CommittedStep, ...]:
    """The newest steps whose parts are all there, at most so many; with ``read`` by their bytes. None of no steps."""
    found: list[CommittedStep] = []
    for entry, manifest in reversed(manifests.items()):
        recorded = all(at_once(checkpoints.parts.is_recorded, manifest.parts))
        if recorded and not (read and checkpoints.parts.problems(manifest.parts)):
            found.append(entry)
        if len(found) == wanted:
            break
    if manifests and not found:
        what = "missing or damaged" if read else "missing"
        raise NoValidCheckpoint(checkpoints.run, checkpoints.store.name, [f"parts of every committed step are {what}"])
    return tuple(found)


def _take_out(checkpoints: CheckpointStore, victims: tuple[CommittedStep, ...]) -> None:
    if not victims:
        return
    for entry in victims:
        checkpoints.put_once(pruned_key(checkpoints.run, entry.step, entry.attempt), checkpoints.manifest_body(entry))
    gone = frozenset(victims)

    def without(head: Head | None) -> Head:
        assert head is not None
        return replace(head, committed=tuple(entry for entry in head.committed if entry not in gone))

    move_head(checkpoints.store, checkpoints.run, without)
    checkpoints.store.delete(manifest_key(checkpoints.run, entry.step, entry.attempt) for entry in victims)
    _log.info("run %s: took %d steps out of use", checkpoints.run, len(victims))
