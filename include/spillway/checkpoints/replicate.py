"""Copy a run's committed steps to another store, so that the loss of a whole site costs only the steps since then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from spillway.checkpoints.claims import claim_parts, drop_claim
from spillway.checkpoints.history import copy_pruned
from spillway.checkpoints.layout import CommittedStep, Head, decode_manifest
from spillway.checkpoints.store import CheckpointStore
from spillway.errors import CorruptCheckpoint, DigestMismatch, Fenced, ForeignCheckpoint, Missing, SpillwayError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationReport:
    """What one run of it did. ``bytes_copied`` counts parts that were sent, not those the destination had.

    ``newest_step`` is the destination's afterwards, None where it has none. ``rejected`` are steps whose bytes are not
    valid at the source, and why the losses of pruned ones were not copied. ``owner`` is the newer attempt that owns the
    run at the destination, where that is why nothing was copied; None otherwise.
    """

    steps_copied: int
    bytes_copied: int
    newest_step: int | None
    rejected: tuple[str, ...] = ()
    owner: int | None = None


def replicate(
    source: CheckpointStore,
    destination: CheckpointStore,
    expect: Callable[[int], None] = lambda size_bytes: None,
    *,
    before_change: Callable[[], None] = lambda: None,
) -> ReplicationReport:
    """Copy the steps that are newer than the destination's newest, oldest first, each committed before the next.

    Stopping anywhere loses nothing: what was copied is whole, and the next call goes on from there. A run that a newer
    attempt owns at the destination is left alone: its steps replace those that the source still has.

    Args:
        expect: told how many bytes are to be sent, before they are.
        before_change: called where there is a step to copy; nothing is changed if it raises.
    """
    head, there = source.head(), destination.head()
    newest = None if there is None else there.newest
    if head is None:
        return ReplicationReport(steps_copied=0, bytes_copied=0, newest_step=None if newest is None else newest.step)
    wanted = _newer(head, newest)
    if wanted:
        before_change()
    steps_copied, bytes_copied, rejected = 0, 0, []
    try:
        if there is not None:
            there = destination.fence(head.attempt)
        for entry in wanted:
            try:
                bytes_copied += _copy(source, destination, entry, expect, owner=head.attempt)
            except (CorruptCheckpoint, ForeignCheckpoint) as problem:
                rejected.append(str(problem))
                continue
            steps_copied, newest = steps_copied + 1, entry
    except Fenced as fenced:
        owner: int | None = fenced.owner
    else:
        owner = None
        rejected += _losses(source, destination)
    _log.info("run %s: %d steps, %d bytes copied to %s", source.run, steps_copied, bytes_copied, destination.store.name)
    return ReplicationReport(
        steps_copied=steps_copied,
        bytes_copied=bytes_copied,
        newest_step=None if newest is None else newest.step,
        rejected=tuple(rejected),
        owner=owner,
    )


def missing_bytes(source: CheckpointStore, destination: CheckpointStore) -> int:
    """About how much ``replicate`` would send: of the steps that it copies each part once.

    Parts of older steps that the destination has are counted too, unless they are of its newest one.
    """
    head, there = source.head(), destination.head()
    newest = None if there is None else there.newest
    known = set() if newest is None else {part.sha256 for part in destination.manifest(newest).parts}
    wanted = _newer(head, newest) if head is not None else ()
    parts = {part.sha256: part.size_bytes for entry in wanted for part in source.manifest(entry).parts}
    return sum(size for sha256, size in parts.items() if sha256 not in known)


def _losses(source: CheckpointStore, destination: CheckpointStore) -> list[str]:
    """Copy what is left of pruned steps; gives why that was not possible, for steps matter more. The next call does."""
    try:
        copy_pruned(source, destination)
    except SpillwayError as problem:
        return [f"losses of pruned steps: {problem}"]
    return []


def _newer(head: Head, newest: CommittedStep | None) -> list[CommittedStep]:
    return [entry for entry in head.committed if newest is None or entry.age_order > newest.age_order]


def _copy(
    source: CheckpointStore,
    destination: CheckpointStore,
    entry: CommittedStep,
    expect: Callable[[int], None],
    *,
    owner: int,
) -> int:
    """Copy one step, its parts first; gives the bytes that were sent."""
    body = source.manifest_body(entry)
    manifest = decode_manifest(source.run, entry.step, entry.attempt, body)
    claim_parts(destination.store, destination.run, manifest.parts, step=entry.step, attempt=entry.attempt)
    try:
        sent = destination.parts.receive(manifest.parts, source.parts, expect)
    except (DigestMismatch, Missing) as problem:
        raise CorruptCheckpoint(source.run, entry.step, str(problem)) from problem
    destination.adopt(entry, body, owner=owner)
    drop_claim(destination.store, destination.run, entry.step, entry.attempt)
    return sent
