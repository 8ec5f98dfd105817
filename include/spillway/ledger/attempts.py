"""The one state machine of attempts; every move is a compare-and-set that may be repeated."""

from __future__ import annotations

from datetime import datetime
from typing import Unpack

from sqlalchemy import Connection, func, select

from spillway.errors import IllegalTransition, Missing
from spillway.ledger.connection import Database
from spillway.ledger.moves import follow_settled, hold_draining
from spillway.ledger.rows import (
    OPEN,
    extend_lease,
    fetch_attempt,
    fetch_attempts,
    fetch_open,
    select_attempts,
    write_attempt,
)
from spillway.ledger.schema import attempts
from spillway.ledger.values import AttemptFacts
from spillway.model import Attempt, AttemptState, Outcome

NEXT = {
    AttemptState.RESERVED: AttemptState.STAGED,
    AttemptState.STAGED: AttemptState.LAUNCHED,
    AttemptState.LAUNCHED: AttemptState.RUNNING,
}
"""The edges of ``advance``; ``settle`` leads out of each state."""


class AttemptStore:
    """Attempts and their leases; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def attempt(self, run: str, number: int) -> Attempt:
        """That attempt.

        Raises:
            Missing: there is none.
        """
        with self.database.reading() as connection:
            stored = fetch_attempt(connection, run, number)
        if stored is None:
            raise self._missing(f"{run}-{number}")
        return stored

    def attempt_by_label(self, label: str) -> Attempt | None:
        """The attempt of a pod's attempt label, None where this ledger never made it."""
        run, _, number = label.rpartition("-")
        if not number.isascii() or not number.isdigit():
            return None
        with self.database.reading() as connection:
            return fetch_attempt(connection, run, int(number))

    def attempts(self, run: str) -> tuple[Attempt, ...]:
        """A run's attempts, the first one first."""
        with self.database.reading() as connection:
            return fetch_attempts(connection, select_attempts().where(attempts.c.run == run))

    def open_attempt(self, run: str) -> Attempt | None:
        """The one attempt of a run that is not settled, None when there is none."""
        with self.database.reading() as connection:
            return fetch_open(connection, run)

    def recent_attempts(self, since: datetime) -> tuple[Attempt, ...]:
        """The newest attempt of every run, where it is open or was settled after ``since``; oldest first."""
        other = attempts.alias()
        newest = select(func.max(other.c.number)).where(other.c.run == attempts.c.run).scalar_subquery()
        recent = select_attempts().where(OPEN | (attempts.c.settled_at > since), attempts.c.number == newest)
        with self.database.reading() as connection:
            return fetch_attempts(connection, recent)

    def advance(self, attempt: Attempt, to: AttemptState, **facts: Unpack[AttemptFacts]) -> Attempt:
        """Move an attempt on by one state and add what is now known of it; where it is there already, it stays so.

        Raises:
            IllegalTransition: no edge leads there, or the attempt is not in the state that the caller saw.
            Missing: there is no such attempt.
        """
        with self.database.writing() as connection:
            stored = self._stored(connection, attempt)
            if attempt.state is not to and NEXT.get(attempt.state) is not to:
                raise _no_edge(attempt, to)
            if stored.state is to:
                return stored
            if stored.state is not attempt.state:
                raise _moved_by_another(attempt, stored, to)
            return write_attempt(connection, stored, state=to, **facts)

    def amend(self, attempt: Attempt, *, reason: str | None = None, **facts: Unpack[AttemptFacts]) -> Attempt:
        """Add what is known now of an attempt that stays in its state; a settled one keeps what it has.

        Args:
            reason: why the attempt is about to end.
        """
        with self.database.writing() as connection:
            stored = self._stored(connection, attempt)
            if stored.state is AttemptState.SETTLED:
                return stored
            return write_attempt(connection, stored, reason=reason, **facts)

    def settle(
        self, attempt: Attempt, outcome: Outcome, reason: str, now: datetime, **facts: Unpack[AttemptFacts]
    ) -> Attempt:
        """End an attempt and free what it holds; an attempt that ended before keeps its first outcome.

        A move of the run that this concludes is concluded with it.

        ``ended_at`` is ``now`` unless the facts know better, such as the end that the pod itself reports.
        """
        with self.database.writing() as connection:
            stored = self._stored(connection, attempt)
            if stored.state is AttemptState.SETTLED:
                return stored
            facts["ended_at"] = facts.get("ended_at") or now
            end = {"outcome": outcome, "reason": reason, "settled_at": now}
            settled = write_attempt(connection, stored, state=AttemptState.SETTLED, **end, **facts)
            follow_settled(connection, settled, now)
            return settled

    def renew_lease(self, attempt: Attempt, until: datetime) -> Attempt:
        """The attempt as stored, its lease not before ``until``; a settled one stays settled and holds no lease.

        While it is drained for a move its run's place at the target is held as long.
        """
        with self.database.writing() as connection:
            renewed = extend_lease(connection, self._stored(connection, attempt), until)
            if renewed.state is not AttemptState.SETTLED:
                hold_draining(connection, renewed.run, until)
            return renewed

    def expired(self, now: datetime) -> tuple[Attempt, ...]:
        """Open attempts whose lease is over; ``leases.may_expire`` tells which of them nobody runs any more."""
        over = select_attempts().where(OPEN, attempts.c.lease_expires_at <= now)
        with self.database.reading() as connection:
            return fetch_attempts(connection, over)

    def expire(self, attempt: Attempt, now: datetime) -> Attempt:
        """End an attempt whose owner is gone; one whose lease was renewed in the meantime is given back as it is."""
        with self.database.writing() as connection:
            stored = self._stored(connection, attempt)
            if stored.state is AttemptState.SETTLED or stored.lease_expires_at > now:
                return stored
            reason = f"its lease ended at {stored.lease_expires_at.isoformat()} and nobody renewed it"
            end = {"outcome": Outcome.PREEMPTED, "reason": reason, "ended_at": now, "settled_at": now}
            settled = write_attempt(connection, stored, state=AttemptState.SETTLED, **end)
            follow_settled(connection, settled, now)
            return settled

    def _stored(self, connection: Connection, attempt: Attempt) -> Attempt:
        stored = fetch_attempt(connection, attempt.run, attempt.number)
        if stored is None:
            raise self._missing(attempt.label)
        return stored

    def _missing(self, label: str) -> Missing:
        return Missing("attempt", label, self.database.endpoint, fix="reserve() makes the attempts of a run")


def _no_edge(attempt: Attempt, to: AttemptState) -> IllegalTransition:
    edges = ", ".join(f"{before} -> {after}" for before, after in NEXT.items())
    return IllegalTransition(
        f"attempt '{attempt.label}': {attempt.state} -> {to} is not a step of an attempt; expected one of {edges}, "
        "or settle() from any of them"
    )


def _moved_by_another(attempt: Attempt, stored: Attempt, to: AttemptState) -> IllegalTransition:
    seen = stored.state if stored.outcome is None else f"{stored.state} ({stored.outcome}: {stored.reason})"
    return IllegalTransition(
        f"attempt '{attempt.label}' is {seen}, expected {attempt.state} to move it to {to}; "
        "another process moved it, read it again and go on from there"
    )
