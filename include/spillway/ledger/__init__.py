"""The SQL store of decisions, attempts, reservations and costs, on SQLite or PostgreSQL.

SQLAlchemy takes a fifth of a second to load: what needs none of it imports the values from here without it.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any

from spillway.ledger.values import (
    AttemptFacts,
    CostCorrection,
    DecisionRecord,
    LinkUse,
    RecentDecision,
    RunRecord,
    ScalingLook,
    Transfer,
    TransferKind,
    TransferOutcome,
)

if TYPE_CHECKING:
    from spillway.ledger.connection import check_workers_reach
    from spillway.ledger.revisions import upgrade
    from spillway.ledger.store import Ledger, open_ledger

__all__ = [
    "AttemptFacts",
    "CostCorrection",
    "DecisionRecord",
    "Ledger",
    "LinkUse",
    "RecentDecision",
    "RunRecord",
    "ScalingLook",
    "Transfer",
    "TransferKind",
    "TransferOutcome",
    "check_workers_reach",
    "ledger_opener",
    "open_ledger",
    "upgrade",
]

_WITH_SQLALCHEMY = {
    "check_workers_reach": "connection",
    "upgrade": "revisions",
    "Ledger": "store",
    "open_ledger": "store",
}


def ledger_opener(url: Callable[[], str]) -> Callable[[], "Ledger"]:
    """Opens the ledger at the URL on the first call, with what ``open_ledger`` raises; threads may share it."""
    opening = Lock()

    @cache
    def opened() -> "Ledger":
        return import_module(f"{__name__}.store").open_ledger(url())  # type: ignore[no-any-return]

    def open_once() -> "Ledger":
        with opening:
            return opened()

    return open_once


def __getattr__(name: str) -> Any:
    if name not in _WITH_SQLALCHEMY:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_WITH_SQLALCHEMY[name]}"), name)
