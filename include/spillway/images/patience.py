"""Trying again what may pass, without every one of many calls waiting for a registry that is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from spillway.errors import SpillwayError, Unreachable
from spillway.stores.patience import AWAY_SECONDS, TRIES
from spillway.stores.patience import Patience as CallPatience

LONGEST_PAUSE_SECONDS = 120.0

T = TypeVar("T")


class Patience:
    """Makes calls, again where a retry helps. Once one has failed for good, the others are made once each.

    May be used by many threads; the calls must be idempotent.
    """

    def __init__(self) -> None:
        self._lost = threading.Event()

    def run(self, call: Callable[[], T]) -> T:
        """What the call gives; raises what it raised at last."""
        hopeless = self._lost.is_set()
        patience = CallPatience(TRIES, monotonic, away_seconds=AWAY_SECONDS)
        while True:
            try:
                answer = call()
            except SpillwayError as problem:
                if not problem.retry_helps:
                    raise
                pause = _pause_after(problem, patience)
                if pause is None:
                    self._lost.set()
                    patience.give_up(problem)
                asked = problem.retry_after_seconds if isinstance(problem, Unreachable) else None
                wait = max(pause, asked or 0.0)
                if wait > LONGEST_PAUSE_SECONDS:
                    raise
                if self._lost.wait(wait):
                    if hopeless:
                        raise
                    patience.give_up(problem)
            else:
                self._lost.clear()
                patience.answered()
                return answer


def _pause_after(problem: SpillwayError, patience: CallPatience) -> float | None:
    if not isinstance(problem, Unreachable):
        return patience.after_failure()
    return None if problem.waited_seconds is not None else patience.after_away(problem.endpoint, problem.problem)
