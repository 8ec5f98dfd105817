"""A store that does not answer: since when, when to try it again, and when to give it up."""

from __future__ import annotations

import time
from datetime import timedelta

from spillway.trainer.stop import StopSignal

TRIES = 3
"""Tries at least, however long a step takes: two that failed hours apart may be two short outages."""

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 15.0


class Outage:
    """The failures in a row of something at the site, its store first of all.

    It is given up after the patience, and after the stop signal at the end of the grace at the latest, so that the
    process says why it ends instead of being killed.
    """

    def __init__(self, stop: StopSignal, *, patience: timedelta, grace: timedelta) -> None:
        self._stop = stop
        self._patience_seconds, self._grace_seconds = patience.total_seconds(), grace.total_seconds()
        self._since: float | None = None
        self._tries = 0
        self._pause_seconds = _FIRST_PAUSE_SECONDS
        self._next_try = 0.0

    def failed(self) -> None:
        """Count a try that failed."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self._next_try = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self._tries += 1

    def ended(self) -> None:
        """A try has succeeded."""
        self._since, self._tries, self._pause_seconds = None, 0, _FIRST_PAUSE_SECONDS

    @property
    def seconds(self) -> float:
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def try_due(self) -> bool:
        """Whether the store failed and should be tried again by now."""
        return self._since is not None and time.monotonic() >= self._next_try

    @property
    def hopeless(self) -> bool:
        """Whether the store has been silent for longer than it is waited for."""
        if self._stop.requested_at is not None:
            return time.monotonic() + _FIRST_PAUSE_SECONDS >= self._stop.requested_at + self._grace_seconds
        return self._tries >= TRIES and self.seconds >= self._patience_seconds

    def wait(self) -> None:
        """Pause until the next try; shortly once the stop was requested, for then little time is left."""
        if self._stop.requested:
            time.sleep(_FIRST_PAUSE_SECONDS)
        else:
            self._stop.pause(max(self._next_try - time.monotonic(), _FIRST_PAUSE_SECONDS))
