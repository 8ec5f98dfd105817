"""What an attempt says of itself: lines in its log, an object beside its checkpoints, the termination message."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from spillway.checkpoints.progress import LINE_PREFIX

LINES_AT_ONCE = 100
LINE_PERIOD = timedelta(seconds=10)
TERMINATION_LOG = Path("/dev/termination-log")
_MESSAGE_CHARACTERS = 2000
"""The kubelet keeps 4096 bytes of the file; a longer one would not be JSON any more."""


def say(event: str, **facts: Any) -> None:
    """Print one event as a line of the log, at once. Floats keep every digit."""
    print(LINE_PREFIX + json.dumps({"event": event, **facts}), flush=True)


@dataclass(slots=True)
class Lines:
    """Which of many like events get a line of the log: the first ones all, then at most one in LINE_PERIOD.

    A training of weeks has millions of steps; every loss is in the checkpoints.
    """

    at_once: int = LINES_AT_ONCE
    _told: int = 0
    _told_at: float = 0.0

    def due(self, now: float) -> bool:
        """Whether what happens now, in seconds of a clock, is told; it counts as told from then on."""
        if self._told >= self.at_once and now - self._told_at < LINE_PERIOD.total_seconds():
            return False
        self._told, self._told_at = self._told + 1, now
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process ended, by a name of its exit code. ``last_step`` is None where no step was computed."""

    outcome: str
    last_step: int | None
    durable_step: int | None
    error: str | None = None


def write_termination_message(path: Path, ending: Ending) -> None:
    """Leave the ending where the kubelet picks it up; a file that is not there or not writable is no failure."""
    if not path.exists() or not os.access(path, os.W_OK):
        return
    message: Mapping[str, Any] = {
        "outcome": ending.outcome,
        "last_step": ending.last_step,
        "durable_step": ending.durable_step,
        "error": ending.error and ending.error[:_MESSAGE_CHARACTERS],
    }
    path.write_text(json.dumps(message))
