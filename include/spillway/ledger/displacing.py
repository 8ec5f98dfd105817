"""Those that give way to an attempt: who is asked to end, and when."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from sqlalchemy import update

from spillway.ledger.connection import Database
from spillway.ledger.rows import OPEN, fetch_attempt, fetch_attempts, fetch_open, select_attempts
from spillway.ledger.schema import attempts
from spillway.ledger.snapshots import complete
from spillway.ledger.values import Decide
from spillway.model import Attempt, Destination, PlacementPolicy, Snapshot
from spillway.placement.preemption import without


class DisplacingStore:
    """Attempts for which others end; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def displacing(self, attempt: Attempt) -> Attempt | None:
        """The attempt for which this one is asked to end; None where there is none."""
        asking = select_attempts().where(OPEN, attempts.c.displacing_at.is_not(None))
        with self.database.reading() as connection:
            found = fetch_attempts(connection, asking)
        return next((other for other in found if attempt.label in other.displaces), None)

    def displace(
        self, attempt: Attempt, *, now: datetime, snapshot: Snapshot, policy: PlacementPolicy, decide: Decide
    ) -> Attempt | None:
        """Ask those to end whom the attempt still needs to; the attempt with them, None where it fits in no case.

        Much may have changed since it was placed: some have ended by themselves, others have left room beside them, or
        its place is not what it was. Nobody is asked then who need not end. Asking again is asking once.

        Args:
            decide: pure; gets the snapshot of a moment at which the attempt and some of the others hold nothing.
        """
        run, place = attempt.run, attempt.candidate
        with self.database.writing() as connection:
            stored = fetch_attempt(connection, run, attempt.number)
            if stored is None or stored.outcome or stored.displacing_at is not None or not stored.displaces:
                return stored
            wanted = Destination(cluster=place.cluster, pool=place.pool, billing=place.billing)
            seen = dataclasses.replace(snapshot, destination=wanted)
            whole = complete(connection, run, attempt.job, seen, policy, now)

            def fits(ended: list[str]) -> bool:
                return decide(without(whole, {attempt.label, *ended})).chosen is not None

            held = {promise.attempt for promise in whole.reservations}
            needed = [label for label in stored.displaces if label in held]
            if not fits(needed):
                return None
            for label in reversed(needed.copy()):
                if fits(rest := [other for other in needed if other != label]):
                    needed = rest
            same = (attempts.c.run == run) & (attempts.c.number == attempt.number)
            connection.execute(update(attempts).where(same).values(displaces=needed, displacing_at=now))
            return fetch_open(connection, run)
