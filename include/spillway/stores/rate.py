"""A limit of bytes a second that threads share."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

_BURST_SECONDS = 0.25
_SLICE_SECONDS = 1.0
_NO_WAIT_SECONDS = 1e-6


class RateLimit:
    """A token bucket: whoever wants to move bytes takes them first, and waits where the others were faster.

    An amount beyond what a quarter of a second allows is granted as a whole, and whoever comes next waits for all of
    it: over any longer time the rate holds. What is waited for is bytes: ``bytes_per_second`` may be changed at any
    time, and holds within a second for those who wait already. They wait in the order in which they came.
    """

    def __init__(
        self,
        bytes_per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``sleep`` is called for a second at most, again and again; it may change the rate."""
        self._clock, self._sleep, self._lock = clock, sleep, Lock()
        self._taken, self._passed, self._settled_at = 0, 0.0, clock() - _BURST_SECONDS
        self._rate = _above_zero(bytes_per_second)

    @property
    def bytes_per_second(self) -> float:
        return self._rate

    @bytes_per_second.setter
    def bytes_per_second(self, rate: float) -> None:
        with self._lock:
            self._settle()
            self._rate = _above_zero(rate)

    @property
    def passed_bytes(self) -> float:
        """How much of what was taken the rate has let through until now."""
        with self._lock:
            self._settle()
            return min(self._passed, self._taken)

    def take(self, size_bytes: int) -> None:
        """Return when this many bytes may move."""
        with self._lock:
            turn = self._taken
            wait = self._seconds_until(turn)
            self._taken += size_bytes
        while wait > _NO_WAIT_SECONDS:
            self._sleep(min(wait, _SLICE_SECONDS))
            with self._lock:
                wait = self._seconds_until(turn)

    def _seconds_until(self, turn: int) -> float:
        self._settle()
        return (turn - self._passed) / self._rate

    def _settle(self) -> None:
        """Count what the present rate has let through; an idle link saves up no more than a burst."""
        now = self._clock()
        saved_up = self._taken + self._rate * _BURST_SECONDS
        self._passed = min(self._passed + self._rate * (now - self._settled_at), saved_up)
        self._settled_at = now


def _above_zero(rate: float) -> float:
    if not rate > 0:
        raise ValueError(f"expected a rate above 0 bytes a second, got {rate}")
    return rate
