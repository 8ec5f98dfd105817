"""A run's checkpoints on an object store: fence, commit, resume point, restore.

A commit claims its parts, sends them, writes the manifest, then moves HEAD. Only the last counts, and it is one
compare-and-set on the object that also names the owner: so at every instant at most one attempt can commit, a crash
between any two writes leaves nothing that a reader sees, and doing it again completes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from spillway.checkpoints.claims import claim_parts, drop_claim
from spillway.checkpoints.head import move_head, read_head
from spillway.checkpoints.layout import (
    CommittedStep,
    Head,
    decode_manifest,
    encode_manifest,
    head_key,
    manifest_key,
    parse_manifest_key,
    same_content,
    sha256_of,
)
from spillway.checkpoints.parts import Body, PartStore, measure
from spillway.errors import (
    CheckpointConflict,
    CorruptCheckpoint,
    DigestMismatch,
    Fenced,
    Missing,
    NoValidCheckpoint,
    PreconditionFailed,
)
from spillway.model import CheckpointManifest, CheckpointPart
from spillway.stores.base import ObjectStore, read_all

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where a run goes on. ``manifest`` is None for a run that never committed; ``rejected`` says why not newer."""

    manifest: CheckpointManifest | None
    rejected: tuple[str, ...] = ()

    @property
    def step(self) -> int | None:
        return None if self.manifest is None else self.manifest.step

    @property
    def manifest_key(self) -> str | None:
        if self.manifest is None:
            return None
        return manifest_key(self.manifest.run, self.manifest.step, self.manifest.attempt)


class CheckpointStore:
    """The checkpoints of one run in one bucket; ``parts`` is the same bucket where its parts are read otherwise."""

    def __init__(self, store: ObjectStore, run: str, *, parts: ObjectStore | None = None) -> None:
        self.store, self.run = store, run
        self.parts = PartStore(parts or store, run)

    # -- ownership ----------------------------------------------------------------------------------------------------

    def head(self) -> Head | None:
        """Who owns the run and what is committed; None for a run that nobody has fenced yet.

        Raises:
            CorruptCheckpoint, ForeignCheckpoint: HEAD cannot be believed; nothing is guessed.
        """
        return read_head(self.store, self.run)

    def fence(self, attempt: int) -> Head:
        """Make ``attempt`` the only one that can commit; what is committed stays. The same number again is no change.

        Raises:
            Fenced: a newer attempt owns the run.
        """

        def own(head: Head | None) -> Head:
            if head is None:
                return Head(run=self.run, attempt=attempt)
            if head.attempt > attempt:
                raise Fenced(self.run, attempt=attempt, owner=head.attempt, where=self.store.name)
            return replace(head, attempt=attempt)

        return move_head(self.store, self.run, own)

    # -- commit -------------------------------------------------------------------------------------------------------

    def commit(
        self,
        *,
        step: int,
        attempt: int,
        world_size: int,
        parts: Mapping[str, Body],
        data_cursor: Mapping[str, Any],
        metrics: Mapping[str, Any],
        now: datetime,
    ) -> CheckpointManifest:
        """Commit one step; committing the same again gives the manifest that is there.

        Raises:
            Fenced: another attempt owns the run; nothing became visible.
            CheckpointConflict: this step was written with other content, or the attempt has committed a later one.
            Missing: a part that another rank sent is not there.
        """
        began = time.monotonic()
        stored = self.send(step=step, attempt=attempt, parts=parts)
        manifest, body = self._write_manifest(
            CheckpointManifest(
                run=self.run,
                step=step,
                attempt=attempt,
                world_size=world_size,
                parts=stored,
                data_cursor=data_cursor,
                metrics=metrics,
                created_at=now,
            )
        )
        entry = CommittedStep(step=step, attempt=attempt, sha256=sha256_of(body))
        move_head(self.store, self.run, lambda head: self._append(self._owned(head, attempt), entry))
        shared = any(isinstance(body, CheckpointPart) for body in parts.values())
        drop_claim(self.store, self.run, step, attempt, of_all_ranks=shared)
        seconds = time.monotonic() - began
        _log.info("run %s: committed step %d, %d bytes in %.2f s", self.run, step, manifest.size_bytes, seconds)
        return manifest

    def send(self, *, step: int, attempt: int, parts: Mapping[str, Body], rank: int = 0) -> tuple[CheckpointPart, ...]:
        """Send parts of a step that rank 0 is to commit; until it has, no reader sees and no sweep takes them.

        Raises:
            Fenced: another attempt owns the run; nothing was sent.
        """
        self._owned(self.head(), attempt)
        stored = measure(parts)
        claim_parts(self.store, self.run, stored, step=step, attempt=attempt, rank=rank)
        self.parts.add(stored, parts)
        return stored

    def adopt(self, entry: CommittedStep, body: bytes, *, owner: int) -> Head:
        """Commit a step that another store committed, and hand the run to ``owner``; its parts must be here already.

        Raises:
            Fenced: a newer attempt than ``owner`` owns the run here.
        """
        key = manifest_key(self.run, entry.step, entry.attempt)
        if self.put_once(key, body) != body:
            problem = f"{self.store.name}: {key} holds another content of that step"
            raise CheckpointConflict(self.run, step=entry.step, attempt=entry.attempt, problem=problem)

        def append(head: Head | None) -> Head:
            if head is not None and head.attempt > owner:
                raise Fenced(self.run, attempt=owner, owner=head.attempt, where=self.store.name)
            known = () if head is None else head.committed
            return self._append(Head(run=self.run, attempt=owner, committed=known), entry)

        return move_head(self.store, self.run, append)

    # -- reading ------------------------------------------------------------------------------------------------------

    def manifests(self) -> tuple[CheckpointManifest, ...]:
        """Every committed manifest, oldest first; raises CorruptCheckpoint where one cannot be read."""
        head = self.head()
        return () if head is None else tuple(self.manifest(entry) for entry in head.committed)

    def manifest(self, entry: CommittedStep) -> CheckpointManifest:
        """The manifest that HEAD lists, verified.

        Raises:
            CorruptCheckpoint: it is missing, or its bytes are not the ones that were committed.
            ForeignCheckpoint: it is of another run.
        """
        return decode_manifest(self.run, entry.step, entry.attempt, self.manifest_body(entry))

    def manifest_body(self, entry: CommittedStep) -> bytes:
        """The manifest's bytes, verified; raises CorruptCheckpoint where they are missing or other ones."""
        try:
            body = read_all(self.store, manifest_key(self.run, entry.step, entry.attempt))
        except Missing as missing:
            raise CorruptCheckpoint(self.run, entry.step, "its manifest is missing") from missing
        if (seen := sha256_of(body)) != entry.sha256:
            problem = f"its manifest has sha256 {seen}, HEAD committed {entry.sha256}"
            raise CorruptCheckpoint(self.run, entry.step, problem)
        return body

    def committed_manifest(self, key: str) -> CheckpointManifest:
        """The manifest of this key, if it is a committed one of this run.

        Raises:
            ForeignCheckpoint: it belongs to another run.
            CorruptCheckpoint: it is not committed, or not whole.
        """
        step, attempt = parse_manifest_key(self.run, key)
        head = self.head()
        entry = None if head is None else head.find(step, attempt)
        if entry is None:
            raise CorruptCheckpoint(self.run, step, f"{self.store.name}: {key} is not committed")
        return self.manifest(entry)

    def resume_point(self) -> ResumePoint:
        """The newest valid committed step: its manifest and the bytes of every part are read. Nothing is deleted.

        Raises:
            NoValidCheckpoint: steps are committed and none of them is valid; the message says why for each.
        """
        head = self.head()
        if head is None or not head.committed:
            return ResumePoint(manifest=None)
        rejected: list[str] = []
        for entry in reversed(head.committed):
            try:
                manifest = self.manifest(entry)
            except CorruptCheckpoint as corrupt:
                rejected.append(f"step {entry.step} of attempt {entry.attempt}: {corrupt.problem}")
                continue
            problems = self.parts.problems(manifest.parts)
            if not problems:
                return ResumePoint(manifest=manifest, rejected=tuple(rejected))
            rejected.append(f"step {entry.step} of attempt {entry.attempt}: {'; '.join(problems)}")
        raise NoValidCheckpoint(self.run, self.store.name, rejected)

    def load(self, manifest: CheckpointManifest, name: str) -> bytes:
        """The verified bytes of a part; raises CorruptCheckpoint where they are missing, damaged or not listed."""
        part = next((part for part in manifest.parts if part.name == name), None)
        if part is None:
            names = ", ".join(part.name for part in manifest.parts)
            raise CorruptCheckpoint(self.run, manifest.step, f"it has no part '{name}'; its parts: {names}")
        try:
            return b"".join(self.parts.read(part))
        except (Missing, DigestMismatch) as problem:
            raise CorruptCheckpoint(self.run, manifest.step, str(problem)) from problem

    def restore(self, manifest: CheckpointManifest, into: Path, *, names: Collection[str] | None = None) -> None:
        """Make every part, or those of these names, a file under ``into``, verified; each appears whole or not at all.

        Files that have its bytes already stay as they are.

        Raises:
            CorruptCheckpoint: a part is missing or damaged.
            StoreFull: the disk has no room.
        """
        try:
            wanted = [part for part in manifest.parts if names is None or part.name in names]
            self.parts.write_files(wanted, into)
        except (Missing, DigestMismatch) as problem:
            raise CorruptCheckpoint(self.run, manifest.step, str(problem)) from problem

    # -- inside -------------------------------------------------------------------------------------------------------

    def _owned(self, head: Head | None, attempt: int) -> Head:
        if head is None:
            fix = "it is written before an attempt is launched and never removed: restore it, or start a new run"
            raise Missing("object", head_key(self.run), self.store.name, fix=fix)
        if head.attempt != attempt:
            raise Fenced(self.run, attempt=attempt, owner=head.attempt, where=self.store.name)
        return head

    def _append(self, head: Head, entry: CommittedStep) -> Head:
        if entry in head.committed:
            return head
        if head.newest is not None and entry.age_order <= head.newest.age_order:
            newest = f"step {head.newest.step} of attempt {head.newest.attempt}"
            raise CheckpointConflict(
                self.run, step=entry.step, attempt=entry.attempt, problem=f"{newest} is committed already"
            )
        return replace(head, committed=(*head.committed, entry))

    def _write_manifest(self, manifest: CheckpointManifest) -> tuple[CheckpointManifest, bytes]:
        """Store the manifest once; a retry adopts the one that is there, with the moment it was first written."""
        key = manifest_key(self.run, manifest.step, manifest.attempt)
        body = self.put_once(key, encode_manifest(manifest))
        stored = decode_manifest(self.run, manifest.step, manifest.attempt, body)
        if not same_content(stored, manifest):
            problem = f"{self.store.name}: {key} holds another content of that step"
            raise CheckpointConflict(self.run, step=manifest.step, attempt=manifest.attempt, problem=problem)
        return stored, body

    def put_once(self, key: str, body: bytes) -> bytes:
        """Store the bytes where there are none; gives what is there afterwards."""
        try:
            self.store.put(key, body, size_bytes=len(body), sha256=sha256_of(body), if_absent=True)
        except PreconditionFailed:
            return read_all(self.store, key)
        return body
