"""The clock of a replay: when its next beat is, and when the next one that may change anything."""

from __future__ import annotations

from spillway.replay.world import ROUNDED

NEVER = float("inf")


class Clock:
    """``beat_at`` is the next beat, ``looks_at`` the next that need be looked at; seconds, ``NEVER`` while it rests.

    Beats between the two are passed over, unless something happens before.
    """

    def __init__(self, tick: float) -> None:
        self.tick = tick
        self.beat_at = self.looks_at = NEVER

    def beats(self, now: float) -> bool:
        """Whether this is a beat; it rests after that."""
        if self.beat_at < now:
            self.beat_at = self._beat_from(now)  # those before were passed over
        if self.beat_at != now:
            return False
        self.beat_at = NEVER
        return True

    def start(self, now: float) -> None:
        """It beats from now on."""
        self.beat_at = (now // self.tick + 1) * self.tick

    def pass_over(self, steady_until: float) -> None:
        """Beats before then change nothing."""
        steady = steady_until > self.beat_at
        self.looks_at = max(self.beat_at, self._beat_from(steady_until - ROUNDED)) if steady else self.beat_at

    def _beat_from(self, moment: float) -> float:
        return moment if moment == NEVER else -(-moment // self.tick) * self.tick
