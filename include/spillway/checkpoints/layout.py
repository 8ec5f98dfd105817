"""Where a run's checkpoints lie on the store, and what its two kinds of JSON objects say.

    <run>/HEAD                                 who owns the run, and every committed step, oldest first
    <run>/manifests/<step>-<attempt>.json      one step of one attempt; written once, never changed
    <run>/parts/<hh>/<sha256>                  bytes of parts under their own digest; shared between steps
    <run>/progress/<attempt>.json              how far an attempt is; for people, never for a decision
    <run>/claims/<step>-<attempt>.json         the parts that a writer is about to commit; gone once it has
    <run>/claims/<step>-<attempt>-<rank>.json  the same of another rank of a gang, which sends and does not commit
    <run>/SWEEP                                the parts that are being deleted at this moment
    <run>/pruned/<step>-<attempt>.json         the manifest of a step that retention took out: what it had measured

**Committed** is exactly what HEAD lists, by step, attempt and sha256 of the manifest. Everything else under the run,
whole or torn, is not a checkpoint. HEAD lists every step and not only the newest, so that an unreadable manifest never
hides the older steps, and so that a step is taken out of use (retention) in the same atomic way in which it came in.
A step takes about 100 bytes of it.

**Newest** is the highest (attempt, step) pair. A later attempt owns the run: when it resumed from an older step and
computed some steps again, its step 30 replaces the earlier attempt's step 40 as the run's truth. HEAD keeps that order
by itself: attempts only rise (the fence), and the steps of one attempt only rise.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway.codec import decode, encode, from_json
from spillway.errors import ConfigError, CorruptCheckpoint, ForeignCheckpoint
from spillway.model import CheckpointManifest

_NAME_MAX_BYTES = 255
FORMAT = 1
_MANIFEST_KEY = re.compile(r"^(?P<run>.+)/manifests/(?P<step>\d{12,})-(?P<attempt>\d{6,})\.json$")
_OF_A_STEP = re.compile(r"^(?P<step>\d{12,})-(?P<attempt>\d{6,})(-\d{6,})?\.json$")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedStep:
    """One line of HEAD. ``sha256`` is of the manifest's bytes."""

    step: int
    attempt: int
    sha256: str

    @property
    def age_order(self) -> tuple[int, int]:
        """Sorts steps from the oldest to the newest."""
        return (self.attempt, self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The owner of a run and its committed steps, oldest first; empty before the first commit."""

    run: str
    attempt: int
    committed: tuple[CommittedStep, ...] = ()

    @property
    def newest(self) -> CommittedStep | None:
        return self.committed[-1] if self.committed else None

    @property
    def step(self) -> int | None:
        return None if self.newest is None else self.newest.step

    @property
    def manifest(self) -> str | None:
        """The key of the newest committed manifest."""
        return None if self.newest is None else manifest_key(self.run, self.newest.step, self.newest.attempt)

    def find(self, step: int, attempt: int) -> CommittedStep | None:
        return next((entry for entry in self.committed if (entry.step, entry.attempt) == (step, attempt)), None)


# -- keys -------------------------------------------------------------------------------------------------------------


def head_key(run: str) -> str:
    return f"{run}/HEAD"


def manifest_key(run: str, step: int, attempt: int) -> str:
    return f"{run}/manifests/{step:012d}-{attempt:06d}.json"


def pruned_key(run: str, step: int, attempt: int) -> str:
    return f"{run}/pruned/{step:012d}-{attempt:06d}.json"


def claim_key(run: str, step: int, attempt: int, rank: int = 0) -> str:
    """Of the rank that commits, 0, or of another one."""
    return f"{run}/claims/{step:012d}-{attempt:06d}{f'-{rank:06d}' if rank else ''}.json"


def sweep_key(run: str) -> str:
    return f"{run}/SWEEP"


def part_key(run: str, sha256: str) -> str:
    return f"{run}/parts/{sha256[:2]}/{sha256}"


def progress_key(run: str, attempt: int) -> str:
    return f"{run}/progress/{attempt:06d}.json"


def parse_manifest_key(run: str, key: str) -> tuple[int, int]:
    """The step and attempt that a manifest's key names.

    Raises:
        ForeignCheckpoint: the key belongs to another run.
        CorruptCheckpoint: it is not the key of a manifest.
    """
    match = _MANIFEST_KEY.match(key)
    if match is None:
        raise CorruptCheckpoint(run, None, f"expected a key such as '{manifest_key(run, 40, 2)}', got '{key}'")
    if match["run"] != run:
        raise ForeignCheckpoint(run, match["run"], key)
    return int(match["step"]), int(match["attempt"])


def age_order_of(key: str, folder: str) -> tuple[int, int] | None:
    """(attempt, step) of a key of the folder, such as ``<run>/manifests/``; None where its name is no step's."""
    match = _OF_A_STEP.match(key.removeprefix(folder))
    return None if match is None else (int(match["attempt"]), int(match["step"]))


# -- HEAD -------------------------------------------------------------------------------------------------------------


def encode_head(head: Head) -> bytes:
    return _json(
        {
            "format": FORMAT,
            "attempt": head.attempt,
            "step": head.step,
            "manifest": head.manifest,
            "committed": encode(head.committed),
        }
    )


def decode_head(run: str, body: bytes) -> Head:
    """The HEAD that the bytes hold.

    Raises:
        CorruptCheckpoint: it cannot be read, or contradicts itself; nothing is guessed from it.
        ForeignCheckpoint: it points at a manifest of another run.
    """
    try:
        written = decode(_HeadFile, _parse(run, None, body), "HEAD")
    except ConfigError as problem:
        raise CorruptCheckpoint(run, None, str(problem)) from problem
    if written.manifest is not None:
        parse_manifest_key(run, written.manifest)
    head = Head(run=run, attempt=written.attempt, committed=written.committed)
    order = [entry.age_order for entry in head.committed]
    if order != sorted(set(order)) or any(attempt > head.attempt for attempt, _ in order):
        raise CorruptCheckpoint(run, None, "its committed steps are not in order")
    if (head.step, head.manifest) != (written.step, written.manifest):
        seen = f"it names step {written.step} ({written.manifest})"
        raise CorruptCheckpoint(run, None, f"{seen}, its last committed step is {head.step}")
    return head


# -- manifests --------------------------------------------------------------------------------------------------------


def encode_manifest(manifest: CheckpointManifest) -> bytes:
    """The one byte form of a manifest, whose sha256 HEAD records.

    Raises:
        CorruptCheckpoint: a field is out of range, or a part's name would leave the folder it is restored into.
    """
    if problem := _problem(manifest):
        raise CorruptCheckpoint(manifest.run, manifest.step, problem)
    return _json({"format": FORMAT, **encode(manifest)})


def decode_manifest(run: str, step: int, attempt: int, body: bytes) -> CheckpointManifest:
    """The manifest of this step and attempt.

    Raises:
        CorruptCheckpoint: it cannot be read, or is of another step or attempt.
        ForeignCheckpoint: it is of another run.
    """
    try:
        manifest = decode(CheckpointManifest, _parse(run, step, body), "manifest")
    except ConfigError as problem:
        raise CorruptCheckpoint(run, step, str(problem)) from problem
    if manifest.run != run:
        raise ForeignCheckpoint(run, manifest.run, manifest_key(run, step, attempt))
    if (manifest.step, manifest.attempt) != (step, attempt):
        seen = f"step {manifest.step} of attempt {manifest.attempt}"
        raise CorruptCheckpoint(run, step, f"expected step {step} of attempt {attempt}, its manifest is of {seen}")
    if found := _problem(manifest):
        raise CorruptCheckpoint(run, step, found)
    return manifest


def same_content(one: CheckpointManifest, other: CheckpointManifest) -> bool:
    """Whether two manifests describe the same checkpoint, whenever each was written."""
    return {**encode(one), "created_at": None} == {**encode(other), "created_at": None}


def sha256_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeadFile:
    """HEAD as written: ``step`` and ``manifest`` repeat the newest committed step for whoever reads it by hand."""

    attempt: int
    step: int | None
    manifest: str | None
    committed: tuple[CommittedStep, ...]


def _problem(manifest: CheckpointManifest) -> str | None:
    for name, value in (("step", manifest.step), ("attempt", manifest.attempt), ("world_size", manifest.world_size)):
        if value < 1:
            return f"{name} must be at least 1, it is {value}"
    names = [part.name for part in manifest.parts]
    if len(set(names)) != len(names):
        return "two of its parts have the same name"
    for part in manifest.parts:
        if not _safe(part.name):
            return f"the part name {part.name!r} is not a plain relative path"
        if part.size_bytes < 0 or not _SHA256.match(part.sha256):
            return f"part '{part.name}' has size {part.size_bytes} and sha256 {part.sha256!r}"
    return None


def _safe(name: str) -> bool:
    """Whether it is a path below some folder that every file system can hold and every store can name."""
    try:
        names = name.encode().split(b"/")
    except UnicodeEncodeError:
        return False
    return all(0 < len(one) <= _NAME_MAX_BYTES and one not in (b".", b"..") and b"\0" not in one for one in names)


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parse(run: str, step: int | None, body: bytes) -> dict[str, Any]:
    try:
        data = from_json(body)
    except ValueError as problem:
        raise CorruptCheckpoint(run, step, f"it is not JSON ({problem})") from problem
    if not isinstance(data, dict):
        raise CorruptCheckpoint(run, step, f"expected a JSON object, got {type(data).__name__}")
    written = data.pop("format", None)
    if written != FORMAT:
        raise CorruptCheckpoint(run, step, f"expected format {FORMAT}, got {written!r}")
    return data
