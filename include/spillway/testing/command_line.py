"""The command line for tests: what a call gave, and processes that a Ctrl-C can reach."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command gave."""

    code: int
    out: str
    err: str


Spillway = Callable[..., Answer]
"""Runs a command in this process."""
StartSpillway = Callable[..., "subprocess.Popen[str]"]
"""Starts a command as a process of its own."""
RunWithSteps = Callable[..., str]
"""Opens a run that has committed these steps; gives its name."""


def interruptible(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process for which SIGINT is not ignored, as it would be where the tests run in the background of a shell."""
    return subprocess.Popen(
        argv,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
