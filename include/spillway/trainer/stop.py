"""The stop signal: asked for once, seen at the next step, and never lost in a library's own waiting."""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType


class StopSignal:
    """Whether the process was asked to stop (SIGTERM), and a pause that ends at once when it is.

    The handler only writes to a pipe: a lock could be the one that the interrupted code holds.
    """

    def __init__(self) -> None:
        self._readable, self._writable = os.pipe()
        self.requested_at: float | None = None
        """On the clock of ``time.monotonic``."""

    @property
    def requested(self) -> bool:
        return self.requested_at is not None

    def install(self) -> None:
        """Handle SIGTERM from now on; to be done first of all, for process 1 of a container drops it otherwise."""
        signal.signal(signal.SIGTERM, self._handle)

    def pause(self, seconds: float) -> None:
        """Wait; returns at once after the stop was requested."""
        if not self.requested and seconds > 0:
            select.select([self._readable], [], [], seconds)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested_at = time.monotonic()
            os.write(self._writable, b"!")
