"""Wait for what another process will do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    look: Callable[[], T], good: Callable[[T], object] = bool, *, seconds: float = 60, pause: float = 0.05
) -> T:
    """What ``look`` gives once it is ``good``; AssertionError with the last look when the time is over."""
    deadline = time.monotonic() + seconds
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"still {seen!r} after {seconds} s"
        time.sleep(pause)
    return seen
