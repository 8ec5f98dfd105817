"""How long a request to a server is tried again, and when: by what the server says of that, and without it.

What may pass is of three classes. Everything else is not tried again.

- Busy (429, 503, ``Retry-After``): the server is well and wants fewer requests. It is waited for as long as a storm of
  them lasts.
- Away (refused, reset and silent connections, other 5xx): it restarts, or another one takes its place. Whoever moves
  bytes waits for that. Whoever only looks makes a few tries within seconds: a person is to be told soon, and a trainer
  trains on meanwhile.
- Spoiled (bytes that were damaged on their way): a few tries, whoever asks.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import NoReturn

from spillway.errors import SpillwayError, Unreachable
from spillway.stores.waiting import Waiting, waiting

TRIES = 4
"""Of one request, whatever fails."""
AWAY_SECONDS = 30.0
"""How long whoever moves bytes waits for a server that is away, from its first failure: a restart or a fail-over."""
BUSY_SECONDS = 180.0
"""How long a busy server is waited for, from its first answer that says so."""
FIRST_PAUSE_SECONDS = 0.2
_PAUSE_MAX_SECONDS = 20.0
_AWAY_PAUSE_MAX_SECONDS = 5.0
"""Shorter: it is to be found soon after it is back."""


def retry_after_seconds(header: str | None, answered_at: str | None = None) -> float | None:
    """How long ``Retry-After`` asks for, by seconds or by a date, as HTTP allows; None where it does not say that.

    ``answered_at`` is the answer's own ``Date``: of the two clocks only the server's has to know the time.
    """
    wanted = (header or "").strip()
    if wanted.isascii() and wanted.isdigit():
        return float(wanted)
    date = _moment(wanted)
    return None if date is None else max(date - (_moment(answered_at or "") or time.time()), 0.0)


def _moment(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date.replace(tzinfo=date.tzinfo or UTC).timestamp()


class Patience:
    """That with one request: so many tries whatever fails, and more while a server that is away or busy is waited for.

    Pauses grow and differ at random, so that those who wait do not all come back at once.
    """

    def __init__(self, tries: int, clock: Callable[[], float], *, away_seconds: float = 0.0) -> None:
        """With a single try, nothing is tried again."""
        self._tries, self._clock, self._away_seconds = tries, clock, away_seconds
        self._waited_for: Waiting | None = None
        self._failures = self._refusals = 0
        self.waited_seconds: float | None = None
        """How long the server was waited for until the last failure; None where it was only tried again."""
        self._away_until: float | None = None
        self._give_up_at: float | None = None

    def after_failure(self) -> float | None:
        """The seconds until the next try, after one that failed; None: it was the last."""
        self._failures += 1
        return _growing(self._failures, _AWAY_PAUSE_MAX_SECONDS) if self._failures < self._tries else None

    def after_away(self, server: str, seen: str) -> float | None:
        """The same after a try that found the server away, and what it met; a pause of more than a moment is told."""
        if self._away_until is None:
            self._away_until = self._clock() + self._away_seconds
        pause = self.after_failure()
        if self._tries == 1 or not self._away_seconds:
            return pause
        due = pause is not None
        pause = pause or _growing(self._failures, _AWAY_PAUSE_MAX_SECONDS)
        return self._waits(server, seen, pause, self._away_until, self._away_seconds, due=due)

    def after_busy(self, server: str, seen: str, asked_seconds: float | None) -> float | None:
        """The same after an answer that the server is busy, and perhaps for how long."""
        self._refusals += 1
        if self._give_up_at is None:
            self._give_up_at = self._clock() + BUSY_SECONDS
        pause = max(_growing(self._refusals, _PAUSE_MAX_SECONDS), asked_seconds or 0.0)
        if self._tries == 1:
            return None
        return self._waits(server, seen, pause, self._give_up_at, BUSY_SECONDS)

    def answered(self) -> None:
        """The request has succeeded."""
        if self._waited_for is not None:
            self._waited_for.end()

    def give_up(self, problem: SpillwayError) -> NoReturn:
        """Raise the error; it says for how long the server was waited for, where it was."""
        if isinstance(problem, Unreachable) and self.waited_seconds is not None:
            raise Unreachable(problem.endpoint, problem.problem, waited_seconds=self.waited_seconds) from problem
        raise problem

    def _waits(
        self, server: str, seen: str, pause: float, until: float, within: float, *, due: bool = False
    ) -> float | None:
        """The pause, which is told; None where it would last until after the end, unless another try is due anyway."""
        left = until - self._clock()
        self.waited_seconds = within - left
        if pause > left and not due:
            return None
        self._waited_for, most = waiting(server), max(left, 0.0)
        self._waited_for.begin(seen, waited_seconds=self.waited_seconds, pause_seconds=pause, most_seconds=most)
        return pause


def _growing(count: int, most: float) -> float:
    return float(min(FIRST_PAUSE_SECONDS * 2 ** (count - 1), most)) * random.uniform(0.5, 1.0)
