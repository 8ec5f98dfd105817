"""The decisions of a run as a person asks about them, each taken again from its stored inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spillway.ledger import DecisionRecord
from spillway.model import Attempt, PlacementDecision
from spillway.placement.explain import explanation, headline
from spillway.placement.policy import place
from spillway.placement.rules import RULES

if TYPE_CHECKING:
    from spillway.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A stored decision with its whole table, which its inputs give again whenever somebody asks.

    Where they give another decision, ``otherwise`` is that one, and the record has the rows that were stored. It has
    these too where other rules decided: what those came to is not taken again by these.
    """

    record: DecisionRecord
    otherwise: PlacementDecision | None = None

    @property
    def title(self) -> str:
        """What it was taken for."""
        if self.record.attempt is not None:
            return f"attempt {self.record.attempt}"
        ordered = self.record.snapshot.destination
        return "waiting" if ordered is None else f"order to move to {ordered}"

    @property
    def rebuilt(self) -> bool | None:
        """Whether its inputs give it again; None where other rules decided, which these cannot tell of."""
        return self.otherwise is None if self.record.decision.rules == RULES else None

    @property
    def follows(self) -> str:
        """Whether it follows from its inputs, in words."""
        if self.rebuilt is None:
            return f"shown as it was stored: rules {self.record.decision.rules} decided, and these are rules {RULES}"
        if self.otherwise is None:
            return "decided again from the stored inputs: equals the stored decision"
        return f"decided again from the stored inputs: DIFFERS from the stored decision: {headline(self.otherwise)}"


def again(record: DecisionRecord) -> Explained:
    """The stored decision, taken once more.

    Of most decisions no more is stored than what they came to and the row of the chosen place, so the table is made
    here. Older ones are stored whole, and have to be equal in every row.
    """
    stored = record.decision
    if stored.rules != RULES:
        return Explained(record=record)
    decided = place(record.job, record.snapshot, record.policy)
    kept = {verdict.candidate for verdict in stored.verdicts}
    rows = tuple(verdict for verdict in decided.verdicts if verdict.candidate in kept)
    came_to = (decided.chosen, decided.possible, decided.preemption, rows)
    if came_to != (stored.chosen, stored.possible, stored.preemption, stored.verdicts):
        return Explained(record=record, otherwise=decided)
    return Explained(record=replace(record, decision=decided))


def told(record: DecisionRecord) -> str:
    """The table of a decision and what it was worked out from, for a log."""
    return explanation(record.job, record.snapshot, record.policy, record.decision)


def newest(ledger: Ledger, run: str) -> DecisionRecord:
    """The last decision of a run that was decided on, with its table."""
    (record,) = ledger.decisions(run, newest=1)
    return again(record).record


def placing(ledger: Ledger, attempt: Attempt) -> DecisionRecord:
    """The decision that placed the attempt, with its table."""
    decisions = ledger.decisions(attempt.run, telling=True)
    return again(next(record for record in decisions if record.attempt == attempt.number)).record


def explained(ledger: Ledger, run: str, *, newest: int | None = None) -> tuple[Explained, ...]:
    """Those that placed an attempt or were taken for a move, and the newest, oldest first.

    Args:
        newest: so many of the newest only.
    """
    return tuple(map(again, ledger.decisions(run, telling=True, newest=newest)))
