"""Orders to move a run to another place while it trains, and what each came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from spillway.model.decisions import Candidate


class MoveState(StrEnum):
    """``ordered -> draining -> arriving -> done``; a move may fail in each of the first three.

    ORDERED: its place is held and what the run needs is brought there while the run trains on. DRAINING: whoever
    carries the run asks its pod to end. ARRIVING: the run's next attempt has the place. DONE: it did its first step.
    A run whose pod is lost before it is drained arrives all the same: it needs a place, and one is held.
    """

    ORDERED = "ordered"
    DRAINING = "draining"
    ARRIVING = "arriving"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveEstimate:
    """How long a move is expected to take, term by term; None is unknown, never zero.

    ``beforehand`` are the terms that pass while the run trains on: ``image``, ``dataset``, ``checkpoints`` (what of
    them the target lacks now). ``pause`` are those in which nobody trains: ``flush`` (the last checkpoint is written),
    ``last_checkpoint`` (it is brought to the target), ``restart`` (a pod is made and starts), ``lost_steps`` (they are
    trained again).
    """

    beforehand: Mapping[str, timedelta | None]
    pause: Mapping[str, timedelta | None]

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(name for name, term in {**self.beforehand, **self.pause}.items() if term is None)

    @property
    def known(self) -> timedelta:
        """From the order to the first resumed step, unknown terms left out."""
        return sum((term for term in {**self.beforehand, **self.pause}.values() if term), timedelta())

    @property
    def known_pause(self) -> timedelta:
        return sum((term for term in self.pause.values() if term), timedelta())


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """An order to move a run away from the place of ``attempt``: a row of the ledger; ``number`` starts at 1 per run.

    ``target`` is held for the run until its next attempt, ``to_attempt``, has it; nobody keeps it longer than
    ``lease_expires_at`` without renewing it. ``origin`` is plain JSON that names who ordered. ``problem`` is why it
    failed. ``resumed_at`` is when the first step at the target was seen.
    """

    run: str
    number: int
    attempt: int
    target: Candidate
    state: MoveState
    reason: str
    origin: Mapping[str, Any]
    estimate: MoveEstimate
    ordered_at: datetime
    lease_expires_at: datetime
    draining_at: datetime | None = None
    to_attempt: int | None = None
    resumed_step: int | None = None
    resumed_at: datetime | None = None
    ended_at: datetime | None = None
    problem: str | None = None

    @property
    def label(self) -> str:
        """For people."""
        return f"move {self.number} of {self.run}"

    @property
    def open(self) -> bool:
        return self.state not in {MoveState.DONE, MoveState.FAILED}

    @property
    def took(self) -> timedelta | None:
        """From the order to the first resumed step; None where there was none."""
        return None if self.resumed_at is None else self.resumed_at - self.ordered_at

    @property
    def paused(self) -> timedelta | None:
        """How long of that nobody trained, as far as that was ordered; None where that is not known."""
        if self.resumed_at is None or self.draining_at is None:
            return None
        return self.resumed_at - self.draining_at
