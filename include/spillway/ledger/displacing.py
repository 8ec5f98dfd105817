"""Those that give way to an attempt: who is asked to end, and when."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from sqlalchemy import update

from spillway.ledger.connection import Database
from spillway.ledger.rows import (
    OPEN,
    fetch_attempt,
    fetch_attempts,
    fetch_open,
    fetch_open_attempts,
    select_attempts,
)
from spillway.ledger.schema import attempts
from spillway.ledger.snapshots import complete
from spillway.ledger.values import StillNeeded
from spillway.model import Attempt, Destination, PlacementPolicy, Snapshot
from spillway.placement.preemption import without


class DisplacingStore:
    """Attempts for which others end; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def displacing(self, attempt: Attempt, now: datetime) -> Attempt | None:
        """The attempt for which this one is asked to end; None where there is none, or nobody carries it."""
        asking = select_attempts().where(OPEN, attempts.c.displacing_at.is_not(None), attempts.c.lease_expires_at > now)
        with self.database.reading() as connection:
            found = fetch_attempts(connection, asking)
        return next((other for other in found if attempt.label in other.displaces), None)

    def displace(
        self, attempt: Attempt, *, now: datetime, snapshot: Snapshot, policy: PlacementPolicy, needed: StillNeeded
    ) -> Attempt | None:
        """Ask those to end whom the attempt still needs to; the attempt with them, None where it fits in no case.

        Much may have changed since it was placed: some have ended by themselves, others have left room beside them or
        may not be asked any more, or its place is not what it was. Nobody is asked then who need not end. Asking again
        is asking once.

        Args:
            needed: pure; gets the snapshot of a moment at which the attempt holds nothing, and whom it displaces.
        """
        run, place = attempt.run, attempt.candidate
        with self.database.writing() as connection:
            stored = fetch_attempt(connection, run, attempt.number)
            if stored is None or stored.outcome or stored.displacing_at is not None or not stored.displaces:
                return stored
            wanted = Destination(cluster=place.cluster, pool=place.pool, billing=place.billing)
            seen = dataclasses.replace(snapshot, destination=wanted)
            whole = complete(connection, run, attempt.job, seen, policy, now)
            whole = dataclasses.replace(whole, open_attempts=fetch_open_attempts(connection))
            displaces = needed(without(whole, {attempt.label}), stored.displaces)
            if displaces is None:
                return None
            same = (attempts.c.run == run) & (attempts.c.number == attempt.number)
            connection.execute(update(attempts).where(same).values(displaces=list(displaces), displacing_at=now))
            return fetch_open(connection, run)
