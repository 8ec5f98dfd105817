"""The SQL store of decisions, attempts, reservations and costs, on SQLite or PostgreSQL."""

from spillway.ledger.connection import check_workers_reach
from spillway.ledger.revisions import upgrade
from spillway.ledger.store import Ledger, open_ledger
from spillway.ledger.values import (
    AttemptFacts,
    CostCorrection,
    DecisionRecord,
    RunRecord,
    Transfer,
    TransferKind,
    TransferOutcome,
)

__all__ = [
    "AttemptFacts",
    "CostCorrection",
    "DecisionRecord",
    "Ledger",
    "RunRecord",
    "Transfer",
    "TransferKind",
    "TransferOutcome",
    "check_workers_reach",
    "open_ledger",
    "upgrade",
]
