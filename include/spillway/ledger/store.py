"""The ledger: the only home of runs, attempts, moves, decisions, costs, cool-downs, transfers and scaling."""

from __future__ import annotations

from sqlalchemy import Engine, select

from spillway.ledger.attempts import AttemptStore
from spillway.ledger.bookings import CostStore
from spillway.ledger.budgeting import BudgetStore
from spillway.ledger.connection import Database
from spillway.ledger.displacing import DisplacingStore
from spillway.ledger.evidence import EvidenceStore
from spillway.ledger.history import HistoryStore
from spillway.ledger.links import LinkStore
from spillway.ledger.moves import MoveStore
from spillway.ledger.notices import NoticeStore
from spillway.ledger.queueing import QueueStore
from spillway.ledger.reserving import ReservationStore
from spillway.ledger.revisions import check
from spillway.ledger.samples import SampleStore
from spillway.ledger.scaling import ScalingStore
from spillway.ledger.scaling_looks import LookStore
from spillway.ledger.schema import installation
from spillway.ledger.snapshots import SnapshotStore


class Ledger(
    ReservationStore,
    AttemptStore,
    DisplacingStore,
    MoveStore,
    CostStore,
    BudgetStore,
    NoticeStore,
    EvidenceStore,
    LinkStore,
    QueueStore,
    ScalingStore,
    LookStore,
    SnapshotStore,
    SampleStore,
    HistoryStore,
):
    """One database with all of it; each method is one transaction.

    After a lost answer each may be repeated; only ``record_transfer`` then adds a second line.

    Every method raises Unreachable, AccessDenied or ConfigError where the database cannot be used.
    """

    @property
    def engine(self) -> Engine:
        """The SQLAlchemy engine, for reports that need SQL of their own."""
        return self.database.engine

    def installation(self) -> str:
        """The id of this installation: made with the ledger, never changed, what clusters tell its pods by."""
        with self.database.reading() as connection:
            found: str = connection.execute(select(installation.c.id)).scalar_one()
        return found


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
