"""The ledger: the only home of runs, attempts, decisions, costs, cool-downs and transfers."""

from __future__ import annotations

from sqlalchemy import Engine

from spillway.ledger.attempts import AttemptStore
from spillway.ledger.bookings import CostStore
from spillway.ledger.connection import Database
from spillway.ledger.evidence import EvidenceStore
from spillway.ledger.reserving import ReservationStore
from spillway.ledger.revisions import check


class Ledger(ReservationStore, AttemptStore, CostStore, EvidenceStore):
    """One database with all of it; each method is one transaction.

    After a lost answer each may be repeated; only ``record_transfer`` then adds a second line.

    Every method raises Unreachable, AccessDenied or ConfigError where the database cannot be used.
    """

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for reports that need SQL of their own."""
        return self.database.engine


def open_ledger(url: str) -> Ledger:
    """The ledger at a SQLite or PostgreSQL URL.

    Raises:
        ConfigError: the URL is wrong, or ``upgrade`` has not brought the ledger to this release's schema.
        Unreachable: the server does not answer.
        AccessDenied: the server refuses the user or password.
    """
    database = Database(url)
    check(database)
    return Ledger(database)
