"""How the library's errors, and Airflow itself, end a task."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from airflow.sdk.exceptions import AirflowFailException

from spillway.errors import SpillwayError

log = logging.getLogger(__name__)


@contextmanager
def typed_failures() -> Iterator[None]:
    """Fail the task at once where trying again cannot help; let Airflow retry where it can.

    The message of such an error is complete, so the task's log shows it once; where it came from is logged for
    whoever debugs Spillway itself. A task that is marked, cleared or loses its worker ends here too.
    """
    try:
        with _ended_by_sigterm():
            yield
    except SpillwayError as problem:
        if problem.retry_helps:
            raise
        log.debug("the task fails for good", exc_info=True)
        raise AirflowFailException(str(problem)) from None


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block, after Airflow has called the task's ``on_kill``.

    By itself that would go on, in the middle of a copy, until Airflow kills it five seconds later without a trace in
    the transfer log. The exit counts as a failure that may be tried again.
    """
    if threading.current_thread() is not threading.main_thread():  # where no handler may be set
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        log.warning("the task is told to end; what is done stays, the next try goes on from there")
        try:
            if callable(before):
                before(number, frame)
        finally:
            raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
