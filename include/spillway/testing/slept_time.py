"""A time that passes by sleeping only, so that minutes of waiting take a test none."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock


class SleptTime:
    """Stands in for the module ``time``; threads may share it, and then each one's sleep makes it later for all.

    ``pauses`` are those that were slept, ``after_sleep`` is called after each.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.after_sleep: Callable[[], None] = lambda: None
        self._lock = Lock()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.pauses.append(seconds)
            self.now += seconds
        self.after_sleep()
