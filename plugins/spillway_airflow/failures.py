"""How the library's errors end an Airflow task."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from spillway.errors import SpillwayError

log = logging.getLogger(__name__)


@contextmanager
def typed_failures() -> Iterator[None]:
    """Fail the task at once where trying again cannot help; let Airflow retry where it can.

    The message of such an error is complete, so the task's log shows it once; where it came from is logged for
    whoever debugs Spillway itself.
    """
    try:
        yield
    except SpillwayError as problem:
        if problem.retry_helps:
            raise
        log.debug("the task fails for good", exc_info=True)
        raise AirflowFailException(str(problem)) from None
