"""The decisions of a run as a person asks about them, each taken again from its stored inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.ledger import DecisionRecord
from spillway.model import Attempt
from spillway.placement.explain import explanation
from spillway.placement.policy import place

if TYPE_CHECKING:
    from spillway.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A stored decision, and whether the stored inputs give the very same again."""

    record: DecisionRecord
    rebuilt: bool

    @property
    def title(self) -> str:
        """What it was taken for."""
        if self.record.attempt is not None:
            return f"attempt {self.record.attempt}"
        ordered = self.record.snapshot.destination
        return "waiting" if ordered is None else f"order to move to {ordered}"

    @property
    def follows(self) -> str:
        """Whether it follows from its inputs, in words."""
        told = "equals the stored decision" if self.rebuilt else "DIFFERS from the stored decision"
        return f"decided again from the stored inputs: {told}"


def told(record: DecisionRecord) -> str:
    """The table of a decision and what it was worked out from, for a log."""
    return explanation(record.job, record.snapshot, record.policy, record.decision)


def newest(ledger: Ledger, run: str) -> DecisionRecord:
    """The last decision of a run that was decided on."""
    (record,) = ledger.decisions(run, newest=1)
    return record


def placing(ledger: Ledger, attempt: Attempt) -> DecisionRecord:
    """The decision that placed the attempt."""
    return next(record for record in ledger.decisions(attempt.run, telling=True) if record.attempt == attempt.number)


def explained(ledger: Ledger, run: str, *, newest: int | None = None) -> tuple[Explained, ...]:
    """Those that placed an attempt or were taken for a move, and the newest, oldest first.

    Args:
        newest: so many of the newest only.
    """
    return tuple(
        Explained(record=record, rebuilt=place(record.job, record.snapshot, record.policy) == record.decision)
        for record in ledger.decisions(run, telling=True, newest=newest)
    )
