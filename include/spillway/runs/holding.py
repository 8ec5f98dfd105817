"""Keep the lease of an attempt or of a move alive while its owner is busy with something that takes long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spillway.errors import SpillwayError
from spillway.model import Attempt, Move
from spillway.runs.services import Services

RENEWALS_A_LEASE = 3

_log = logging.getLogger(__name__)


@contextmanager
def holding(services: Services, held: Attempt | Move) -> Iterator[None]:
    """Renew the lease for the length of the block; a process that dies in it stops renewing."""
    over = threading.Event()
    lease, ledger = services.configuration.runs.lease, services.ledger

    def renew_until_over() -> None:
        while not over.wait(lease.total_seconds() / RENEWALS_A_LEASE):
            until = services.clock() + lease
            try:
                ledger.renew_move(held, until) if isinstance(held, Move) else ledger.renew_lease(held, until)
            except SpillwayError as problem:
                _log.warning("the lease of %s could not be renewed now: %s", held.label, problem)

    renewing = threading.Thread(target=renew_until_over, name=f"lease-{held.label}", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
