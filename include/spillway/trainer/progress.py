"""What an attempt says of itself: lines in its log, an object beside its checkpoints, the termination message."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LINE_PREFIX = "spillway-progress "
TERMINATION_LOG = Path("/dev/termination-log")
_MESSAGE_CHARACTERS = 2000
"""The kubelet keeps 4096 bytes of the file; a longer one would not be JSON any more."""


def say(event: str, **facts: Any) -> None:
    """Print one event as a line of the log, at once. Floats keep every digit."""
    print(LINE_PREFIX + json.dumps({"event": event, **facts}), flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process ended: succeeded, preempted, fenced or failed. ``last_step`` is None where none was computed."""

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
