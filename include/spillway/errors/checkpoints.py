"""What keeps a run from committing a step, or from resuming at one."""

from __future__ import annotations

from collections.abc import Iterable

from spillway.errors.root import SpillwayError


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
