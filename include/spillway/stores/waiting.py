"""What a person is told of a server that is waited for."""

from __future__ import annotations

import logging
from functools import cache
from threading import Lock
from time import monotonic

TOLD_FROM_SECONDS = 2.0
"""A shorter wait, as for a connection that was reset, is nothing to tell."""
TOLD_EVERY_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Waiting:
    """Tells that a server is waited for, why and for how long still, and when it answers again.

    Threads share one for each server: of many requests that wait, one tells it.
    """

    def __init__(self, server: str) -> None:
        self._server, self._lock = server, Lock()
        self._told_at: float | None = None

    def begin(self, seen: str, *, waited_seconds: float, pause_seconds: float, most_seconds: float) -> None:
        """A request is about to pause.

        Args:
            seen: what its last try met.
            waited_seconds: since its first failure.
            most_seconds: after so many more it gives up.
        """
        if waited_seconds + pause_seconds < TOLD_FROM_SECONDS:
            return
        with self._lock:
            now = monotonic()
            if self._told_at is not None and now - self._told_at < TOLD_EVERY_SECONDS:
                return
            self._told_at = now
            _log.warning("waiting for %s, for %.0f s more at most: %s", self._server, most_seconds, seen)

    def end(self) -> None:
        """It answers."""
        with self._lock:
            if self._told_at is not None:
                self._told_at = None
                _log.warning("%s answers again", self._server)


@cache
def waiting(server: str) -> Waiting:
    """The one of that server in this process, by the name that messages call it."""
    return Waiting(server)
