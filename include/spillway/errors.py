"""Every error that Spillway raises on purpose.

    SpillwayError
    ├── ConfigError             a declared file is wrong; nothing was started
    ├── UnknownName             a name that no configuration declares
    ├── Unreachable             an endpoint did not answer (a retry helps)
    ├── AccessDenied            an endpoint refused the credentials
    ├── RequestRefused          an endpoint understood a request and will not do it
    ├── InvalidImage            an image reference or manifest that cannot be used
    ├── Missing                 an object, bucket, image, tag or pod that should exist
    ├── PreconditionFailed      a conditional write lost its race
    ├── DigestMismatch          bytes are not what their digest promises
    ├── KeyRefused              a key that a store cannot hold exactly as it is
    ├── StoreFull               a store or a disk that has no space left
    ├── Fenced                  a newer attempt owns the run
    ├── CorruptCheckpoint       a committed step whose bytes no longer match
    ├── CheckpointConflict      a step of an attempt that was written before, with other content
    ├── ForeignCheckpoint       a checkpoint that belongs to another run
    ├── NoValidCheckpoint       a run that must resume has nothing to resume from
    ├── BadData                 training data that cannot be used
    ├── ResidencyRefused        bytes that may not leave their site
    ├── DeletesRefused          a sync would delete more than its guard allows
    ├── SyncIncomplete          a dataset of which some objects could not be copied
    ├── IncompleteListing       a listing that cannot be trusted to be whole
    ├── CapacityNever           no declared capacity can ever hold the job
    ├── LaunchRefused           a gate refused to start a pod
    ├── TrainingFailed          the program itself failed; starting it elsewhere would not help
    ├── NoProgress              attempts in a row that committed nothing new
    ├── ResumeMismatch          an attempt that did not continue where its checkpoint ended
    ├── IllegalTransition       an attempt asked to move where its state machine has no edge
    └── SandboxError            the embedded sandbox could not be set up or driven

A message says what was seen, what was expected and what to do. ``retry_helps`` tells a caller whether the same call
may succeed later without anybody changing anything.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class SpillwayError(Exception):
    """The root; its text is meant for a person."""

    retry_helps: ClassVar[bool] = False


class ConfigError(SpillwayError):
    """A declared file is wrong: ``clusters.yaml: clusters[2].pools[0].max_nodes: expected an integer, got 'eight'``."""

    def __init__(self, file: str, path: str, problem: str) -> None:
        super().__init__(f"{file}: {path}: {problem}" if path else f"{file}: {problem}")
        self.file, self.path, self.problem = file, path, problem


class UnknownName(SpillwayError):
    """A name that no configuration declares; says which names exist and which one is close."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        close = difflib.get_close_matches(name, self.known, n=1)
        hint = f". Did you mean '{close[0]}'?" if close else ""
        super().__init__(f"unknown {kind} '{name}'; known: {', '.join(self.known) or 'none'}{hint}")


class Unreachable(SpillwayError):
    """An endpoint did not answer, answered 5xx, or ran into its deadline."""

    retry_helps = True

    def __init__(self, endpoint: str, problem: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(f"{endpoint} is unreachable: {problem}")
        self.endpoint, self.problem, self.retry_after_seconds = endpoint, problem, retry_after_seconds


class AccessDenied(SpillwayError):
    """An endpoint refused the credentials (401, 403)."""

    def __init__(self, endpoint: str, problem: str, *, fix: str) -> None:
        super().__init__(f"{endpoint} refused the credentials: {problem}; {fix}")
        self.endpoint, self.problem = endpoint, problem


class RequestRefused(SpillwayError):
    """An endpoint understood a request and will not do it (4xx), so the same request never succeeds."""

    def __init__(self, endpoint: str, request: str, problem: str) -> None:
        super().__init__(f"{endpoint} refused {request}: {problem}")
        self.endpoint, self.request, self.problem = endpoint, request, problem


class InvalidImage(SpillwayError):
    """An image reference or manifest that cannot be used: ``image 'Train:v1': expected lower case letters ...``."""

    def __init__(self, image: str, problem: str) -> None:
        super().__init__(f"image '{image}': {problem}")
        self.image, self.problem = image, problem


class Missing(SpillwayError):
    """Something that should exist does not: ``image 'train:v9' is not in registry onprem; its tags: v1, v2``."""

    def __init__(self, kind: str, name: str, where: str, *, fix: str = "") -> None:
        super().__init__(f"{kind} '{name}' is not in {where}" + (f"; {fix}" if fix else ""))
        self.kind, self.name, self.where = kind, name, where


class PreconditionFailed(SpillwayError):
    """A conditional read or write found another state of the object than the one it was conditioned on."""

    def __init__(self, where: str, key: str, condition: str) -> None:
        super().__init__(f"{where}: {key}: the condition '{condition}' no longer holds; read it again and decide anew")
        self.where, self.key, self.condition = where, key, condition


class DigestMismatch(SpillwayError):
    """Bytes are not what their digest promises."""

    def __init__(self, what: str, *, expected: str, seen: str) -> None:
        super().__init__(f"{what}: expected digest {expected}, the bytes have {seen}; they were not used")
        self.what, self.expected, self.seen = what, expected, seen


class KeyRefused(SpillwayError):
    """A key that a store cannot hold exactly as it is; nothing was written."""

    def __init__(self, where: str, key: str, problem: str) -> None:
        super().__init__(f"{where} cannot hold the key {key!r}: {problem}; rename the object at its source")
        self.where, self.key, self.problem = where, key, problem


class StoreFull(SpillwayError):
    """A store or a disk that has no space left; what was being written is not visible."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where} is full: {problem}; free or add space and run it again")
        self.where, self.problem = where, problem


class Fenced(SpillwayError):
    """A newer attempt owns the run: this one may not commit any more."""

    def __init__(self, run: str, *, attempt: int, owner: int, where: str) -> None:
        super().__init__(
            f"run '{run}': attempt {attempt} is fenced at {where}, attempt {owner} owns the run now; "
            "this process must stop without committing"
        )
        self.run, self.attempt, self.owner, self.where = run, attempt, owner, where


class CorruptCheckpoint(SpillwayError):
    """A committed step whose manifest or parts no longer match their checksums; ``step`` is None for the run's HEAD."""

    def __init__(self, run: str, step: int | None, problem: str) -> None:
        what = "HEAD" if step is None else f"checkpoint of step {step}"
        super().__init__(f"run '{run}': {what} is not valid: {problem}")
        self.run, self.step, self.problem = run, step, problem


class CheckpointConflict(SpillwayError):
    """A step of an attempt that was written before with other content, or out of order; the old one stays."""

    def __init__(self, run: str, *, step: int, attempt: int, problem: str) -> None:
        super().__init__(f"run '{run}': step {step} of attempt {attempt} was not committed: {problem}")
        self.run, self.step, self.attempt, self.problem = run, step, attempt, problem


class ForeignCheckpoint(SpillwayError):
    """A checkpoint that belongs to another run than the one that wants to resume from it."""

    def __init__(self, run: str, owner: str, where: str) -> None:
        super().__init__(f"{where} holds a checkpoint of run '{owner}', expected run '{run}'; it was not used")
        self.run, self.owner = run, owner


class NoValidCheckpoint(SpillwayError):
    """A run that must resume has no valid committed step."""

    def __init__(self, run: str, where: str, rejected: Iterable[str]) -> None:
        reasons = "; ".join(rejected) or "nothing was ever committed"
        super().__init__(f"run '{run}' has no valid committed step at {where}: {reasons}")
        self.run, self.where = run, where


class BadData(SpillwayError):
    """Training data that cannot be used: ``digits/shard-000.csv: line 7: expected 65 numbers, got 3``."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where, self.problem = where, problem


class ResidencyRefused(SpillwayError):
    """Bytes that may not leave their site."""

    def __init__(self, what: str, *, tier: str, source: str, destination: str) -> None:
        super().__init__(
            f"{what} is of tier '{tier}' and may not be stored at '{destination}' (its home is '{source}'); "
            "its owner can declare another tier in datasets.yaml"
        )
        self.what, self.tier, self.source, self.destination = what, tier, source, destination


class DeletesRefused(SpillwayError):
    """A sync would delete more than its guard allows; nothing was deleted."""


class SyncIncomplete(SpillwayError):
    """A dataset of which some objects could not be copied; what was copied is kept, the next sync goes on there."""

    retry_helps = True

    def __init__(self, dataset: str, where: str, *, failed: int, first: str) -> None:
        super().__init__(f"dataset '{dataset}' is not whole at {where}: {failed} objects failed, the first: {first}")
        self.dataset, self.where, self.failed = dataset, where, failed


class IncompleteListing(SpillwayError):
    """A listing that cannot be trusted to be whole; acting on it could delete or miss objects."""

    retry_helps = True


class CapacityNever(SpillwayError):
    """No declared capacity can ever hold the job; ``table`` says why for each candidate."""

    def __init__(self, job: str, table: str) -> None:
        super().__init__(f"job '{job}' can never be placed: no declared pool can hold it\n{table}")
        self.job, self.table = job, table


class LaunchRefused(SpillwayError):
    """A gate refused to start a pod."""


class TrainingFailed(SpillwayError):
    """The program itself failed: starting it elsewhere would not help."""


class NoProgress(SpillwayError):
    """Attempts in a row that committed nothing new."""


class ResumeMismatch(SpillwayError):
    """An attempt that did not continue exactly where its checkpoint ended."""

    def __init__(self, run: str, *, resumed_from_step: int | None, first_step: int) -> None:
        expected = 1 if resumed_from_step is None else resumed_from_step + 1
        super().__init__(f"run '{run}': expected the attempt to begin with step {expected}, it began with {first_step}")
        self.run, self.expected, self.first_step = run, expected, first_step


class IllegalTransition(SpillwayError):
    """An attempt asked to move where its state machine has no edge."""


class SandboxError(SpillwayError):
    """The embedded sandbox could not be set up or driven."""
