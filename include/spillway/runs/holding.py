"""Keep an attempt's lease alive while its owner is busy with something that takes long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spillway.errors import SpillwayError
from spillway.model import Attempt
from spillway.runs.services import Services

RENEWALS_A_LEASE = 3

_log = logging.getLogger(__name__)


@contextmanager
def holding(services: Services, attempt: Attempt) -> Iterator[None]:
    """Renew the lease for the length of the block; a process that dies in it stops renewing."""
    over = threading.Event()
    lease = services.configuration.runs.lease

    def renew_until_over() -> None:
        while not over.wait(lease.total_seconds() / RENEWALS_A_LEASE):
            try:
                services.ledger.renew_lease(attempt, services.clock() + lease)
            except SpillwayError as problem:
                _log.warning("the lease of %s could not be renewed now: %s", attempt.label, problem)

    renewing = threading.Thread(target=renew_until_over, name=f"lease-{attempt.label}", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        over.set()
        renewing.join()
