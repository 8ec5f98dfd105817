"""How a run ends, or why it does not begin."""

from __future__ import annotations

from spillway.errors.counts import counted
from spillway.errors.root import SpillwayError


class BadData(SpillwayError):
    """Training data that cannot be used: ``digits/shard-000.csv: line 7: expected 65 numbers, got 3``."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where, self.problem = where, problem


class BadTrace(SpillwayError):
    """A history of jobs that cannot be read as one: ``jobs.csv: line 7: gpus: expected a whole number, got 'nan'``.

    ``line`` is None where it is about the whole file.
    """

    def __init__(self, file: str, line: int | None, problem: str, *, fix: str = "") -> None:
        where = file if line is None else f"{file}: line {line}"
        super().__init__(f"{where}: {problem}; {fix}" if fix else f"{where}: {problem}")
        self.file, self.line, self.problem, self.fix = file, line, problem, fix


class CapacityNever(SpillwayError):
    """No declared capacity can ever hold the job; ``table`` says why for each candidate."""

    def __init__(self, job: str, table: str) -> None:
        super().__init__(f"job '{job}' can never be placed: no declared pool can hold it\n{table}")
        self.job, self.table = job, table


class InsufficientHistory(SpillwayError):
    """A history without a single measured step, or with too few for what is asked of it."""

    def __init__(self, steps: int, problem: str = "none of which was measured, and no job") -> None:
        super().__init__(
            f"the history has {counted(steps, 'step')}, {problem}; record samples first, or import a history of jobs"
        )
        self.steps, self.problem = steps, problem


class LaunchRefused(SpillwayError):
    """A gate refused to start a pod."""


class TrainingFailed(SpillwayError):
    """The program itself failed: starting it elsewhere would not help."""


class MoveRefused(SpillwayError):
    """A run that is not moved; it goes on where it is, or waits as it did. ``retry_helps`` where time may change it.

    ``places`` are those that were looked at, and what speaks against each.
    """

    def __init__(self, run: str, problem: str, *, places: str = "", retry_helps: bool = False) -> None:
        super().__init__(f"run '{run}' is not moved: {problem}")
        self.run, self.problem, self.places, self.retry_helps = run, problem, places, retry_helps


class NoProgress(SpillwayError):
    """Attempts in a row that committed nothing new."""


class ResumeMismatch(SpillwayError):
    """An attempt that did not continue exactly where its checkpoint ended."""

    def __init__(self, run: str, *, resumed_from_step: int | None, first_step: int) -> None:
        expected = 1 if resumed_from_step is None else resumed_from_step + 1
        super().__init__(f"run '{run}': expected the attempt to begin with step {expected}, it began with {first_step}")
        self.run, self.expected, self.first_step = run, expected, first_step


class RunCancelled(SpillwayError):
    """A run that a person has ended: it gets no attempt until somebody asks for it anew."""

    def __init__(self, run: str, reason: str) -> None:
        super().__init__(
            f"run '{run}' is cancelled: {reason}; whoever wants it all the same clears its task or starts its job again"
        )
        self.run, self.reason = run, reason


class IllegalTransition(SpillwayError):
    """An attempt asked to move where its state machine has no edge."""


class SandboxError(SpillwayError):
    """The embedded sandbox could not be set up or driven."""
