"""Delete what no committed step needs: parts, manifests and claims that pruned steps and dead attempts left behind.

Uploads of parts that nobody has ended for ``CLAIM_LIFE`` are aborted, unless a living claim names the part.

Everything here may be repeated and may stop anywhere. What a reader or a writer needs is never deleted: a part stays
while a manifest that HEAD lists or a living claim names it, and for ``PART_GRACE`` after it was sent; a manifest stays
while HEAD lists it or can still come to list it. Where one of them cannot be read nothing is deleted.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spillway.checkpoints.claims import (
    CLAIM_LIFE,
    SWEEP_LIFE,
    Sweep,
    claimed_parts,
    dead_claims,
    read_sweep,
    write_sweep,
)
from spillway.checkpoints.layout import CommittedStep, Head, age_order_of, sweep_key
from spillway.checkpoints.parts import at_once
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import AccessDenied, CorruptCheckpoint, PreconditionFailed, RequestRefused
from spillway.model import ObjectInfo
from spillway.stores.base import Upload

PART_GRACE = timedelta(minutes=15)
"""Trainers of older releases claim nothing; theirs are the parts that this protects. On the store's own clock."""

_BATCH = 500
_SLICE = 20
"""Parts of a batch that are looked at before the time is."""

_TIME = SWEEP_LIFE / 5
"""From the announcement of a batch to its delete; half of it is for looking at the parts."""

_Known = dict[CommittedStep, frozenset[str]]
"""The parts of manifests that were read: what is committed never changes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What was deleted, or would be.

    ``busy``: another sweep of the run was at work, and some of it was left to it. ``late``: parts that were left, for
    the store answered too slowly to delete them safely. ``uploads`` are the keys of those that were aborted,
    ``uploads_unknown`` why the store does not show them; empty where it does.
    """

    parts: int = 0
    size_bytes: int = 0
    others: int = 0
    busy: bool = False
    late: int = 0
    uploads: tuple[str, ...] = ()
    uploads_unknown: str = ""


def sweep(
    checkpoints: CheckpointStore,
    *,
    now: datetime,
    grace: timedelta = PART_GRACE,
    dry_run: bool = False,
    gone: Iterable[CommittedStep] = (),
) -> SweepReport:
    """Delete what nothing refers to any more.

    Args:
        gone: committed steps that a dry run counts as taken out already.
    Raises:
        CorruptCheckpoint, ForeignCheckpoint: HEAD, a committed manifest or a claim cannot be read.
    """
    head = checkpoints.head()
    if head is None:
        return SweepReport()
    others = [*_dead_manifests(checkpoints, head), *dead_claims(checkpoints.store, checkpoints.run, head, now)]
    known: _Known = {}
    unused = [info for info in _unused(checkpoints, now, known, frozenset(gone)) if _is_old(info, now, grace)]
    report = _sweep_uploads(checkpoints, head, now, dry_run=dry_run)
    if dry_run:
        return replace(report, parts=len(unused), size_bytes=_size_bytes(unused), others=len(others))
    refused = checkpoints.store.delete(others) if others else {}
    report = replace(report, others=len(others) - len(refused))
    while unused:
        batch = _delete(checkpoints, unused[:_BATCH], now, grace, known)
        if batch is None:
            report = replace(report, busy=True)
            break
        if not batch.looked_at:
            report = replace(report, late=len(unused))
            break
        unused = unused[batch.looked_at :]
        size_bytes = report.size_bytes + _size_bytes(batch.deleted)
        report = replace(report, parts=report.parts + len(batch.deleted), size_bytes=size_bytes)
    if report.parts or report.others or report.uploads:
        swept = "run %s: swept %d parts, %d bytes, %d unfinished uploads"
        _log.info(swept, checkpoints.run, report.parts, report.size_bytes, len(report.uploads))
    return report


def _sweep_uploads(checkpoints: CheckpointStore, head: Head, now: datetime, *, dry_run: bool) -> SweepReport:
    """Abort the uploads that nobody will take up. An identity without the right to see them keeps nothing else back."""
    store, run = checkpoints.store, checkpoints.run
    try:
        old = [upload for upload in store.uploads(f"{run}/parts/") if now - upload.begun_at > CLAIM_LIFE]
        claimed = set(claimed_parts(store, run, head, now)) if old else set()
        dead = [upload for upload in old if _sha256(upload) not in claimed]
        for upload in () if dry_run else dead:
            store.abort(upload)
    except (AccessDenied, RequestRefused) as problem:
        return SweepReport(uploads_unknown=str(problem))
    return SweepReport(uploads=tuple(upload.key for upload in dead))


def _dead_manifests(checkpoints: CheckpointStore, head: Head) -> Iterator[str]:
    """Manifests that HEAD does not list and never will, for it only goes forward."""
    folder = f"{checkpoints.run}/manifests/"
    listed = {entry.age_order for entry in head.committed}
    for info in checkpoints.store.list(folder):
        order = age_order_of(info.key, folder)
        if order is not None and head.newest is not None and order < head.newest.age_order and order not in listed:
            yield info.key


def _unused(
    checkpoints: CheckpointStore, now: datetime, known: _Known, gone: frozenset[CommittedStep]
) -> list[ObjectInfo]:
    """The parts that no committed manifest and no living claim names."""
    folder = f"{checkpoints.run}/parts/"
    there = list(checkpoints.store.list(folder))
    used = _used(checkpoints, now, known, gone)
    return [info for info in there if _sha256(info) not in used]


def _used(
    checkpoints: CheckpointStore, now: datetime, known: _Known, gone: frozenset[CommittedStep] = frozenset()
) -> set[str]:
    """Claims first: a step that is committed between the two reads is then in one of them."""
    seen = checkpoints.head()
    claimed = set(claimed_parts(checkpoints.store, checkpoints.run, seen, now)) if seen else set()
    head = checkpoints.head()
    if head is None:
        raise CorruptCheckpoint(checkpoints.run, None, "it went away while the run was swept")
    listed = set(head.committed) - gone
    new = list(listed - known.keys())
    known.update(zip(new, at_once(lambda entry: _parts_of(checkpoints, entry), new), strict=True))
    return claimed.union(*(known[entry] for entry in listed))


def _parts_of(checkpoints: CheckpointStore, entry: CommittedStep) -> frozenset[str]:
    return frozenset(part.sha256 for part in checkpoints.manifest(entry).parts)


@dataclass(frozen=True, slots=True)
class _Batch:
    """How many of its parts, from the first on, were dealt with in time, and those that were deleted."""

    looked_at: int
    deleted: list[ObjectInfo]


def _delete(
    checkpoints: CheckpointStore, batch: list[ObjectInfo], now: datetime, grace: timedelta, known: _Known
) -> _Batch | None:
    """Announce the deletes, look once more who needs a part, then delete; None where another sweep is at work."""
    store, began = checkpoints.store, time.monotonic()
    mine = Sweep(by=uuid.uuid4().hex, parts=tuple(_sha256(info) for info in batch))
    if not _announce(checkpoints, mine, now):
        return None
    try:
        announced = store.head(sweep_key(checkpoints.run))
        clock = announced.modified_at if announced else None
        used = _used(checkpoints, now, known)
        looked_at, there = 0, []
        while looked_at < len(batch) and (not looked_at or time.monotonic() - began < _TIME.total_seconds() / 2):
            part = batch[looked_at : looked_at + _SLICE]
            there += at_once(store.head, [info.key for info in part if _sha256(info) not in used])
            looked_at += len(part)
        ready = [info for info in there if info and clock is not None and _is_old(info, clock, grace)]
        if time.monotonic() - began > _TIME.total_seconds():
            return _Batch(0, [])
        refused = store.delete([info.key for info in ready])
        return _Batch(looked_at, [info for info in ready if info.key not in refused])
    finally:
        _withdraw(checkpoints, mine)


def _announce(checkpoints: CheckpointStore, mine: Sweep, now: datetime) -> bool:
    there = checkpoints.store.head(sweep_key(checkpoints.run))
    if there is not None and not _is_dead(checkpoints, there, now):
        return False
    try:
        write_sweep(checkpoints.store, checkpoints.run, mine, replacing=there.etag if there else None)
    except PreconditionFailed:
        return False
    return True


def _is_dead(checkpoints: CheckpointStore, sweep: ObjectInfo, now: datetime) -> bool:
    """Whether a sweep is over by the clock here and by that of the store, which dated it: a living one deletes."""
    if sweep.modified_at is None or now - sweep.modified_at <= SWEEP_LIFE:
        return False
    stamp = f"{sweep.key}-{uuid.uuid4().hex}"
    checkpoints.store.put(stamp, b"", size_bytes=0)
    try:
        there = checkpoints.store.head(stamp)
    finally:
        checkpoints.store.delete([stamp])
    return there is not None and there.modified_at is not None and there.modified_at - sweep.modified_at > SWEEP_LIFE


def _withdraw(checkpoints: CheckpointStore, mine: Sweep) -> None:
    there = read_sweep(checkpoints.store, checkpoints.run)
    if there is not None and there.by == mine.by:
        checkpoints.store.delete([sweep_key(checkpoints.run)])


def _is_old(info: ObjectInfo, clock: datetime, grace: timedelta) -> bool:
    """One whose age the store does not tell counts as young."""
    return info.modified_at is not None and clock - info.modified_at >= grace


def _sha256(part: ObjectInfo | Upload) -> str:
    return part.key.rpartition("/")[2]


def _size_bytes(infos: Iterable[ObjectInfo]) -> int:
    return sum(info.size_bytes for info in infos)
