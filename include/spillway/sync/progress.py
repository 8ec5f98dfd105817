"""How far a transfer is: what has moved of what is to move, how fast, and how long the rest will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

PROGRESS_SECONDS = 30.0
"""How often what copies beside other work says how far it is."""


RATE_HALF_LIFE_SECONDS = 15.0
"""How old a measurement of the rate is when it counts half."""
MEASURED_SECONDS = 1.0
"""Over less no rate is measured: chunks come in bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Objects and bytes that are done, of those that the plan copies; no objects where only bytes are counted."""

    bytes_total: int
    objects_total: int = 0
    objects_done: int = 0
    bytes_done: int = 0

    def after(self, size_bytes: int) -> Progress:
        """One more object of that size is done."""
        return replace(self, objects_done=self.objects_done + 1, bytes_done=self.bytes_done + size_bytes)


OnProgress = Callable[[Progress], None]
Expect = Callable[[int], None]
"""Told of bytes that are to move, before they do; of fewer than none where they need not after all."""


class Moving:
    """The progress of bytes of which it becomes known on the way how many they are. Threads may share it."""

    def __init__(self, on_progress: OnProgress | None = None) -> None:
        self._on_progress, self._lock = on_progress, Lock()
        self._total = self._done = 0

    def expect(self, size_bytes: int) -> None:
        """So many more are to move."""
        with self._lock:
            self._total += size_bytes

    def moved(self, size_bytes: int) -> None:
        """So many more have moved; what is read again after a fault makes the whole no larger."""
        with self._lock:
            self._done += size_bytes
            progress = Progress(bytes_total=self._total, bytes_done=min(self._done, self._total))
            if self._on_progress is not None:
                self._on_progress(progress)


class Rate:
    """Bytes a second, smoothed: what was measured lately counts more. None before the first measurement."""

    def __init__(self, began: float) -> None:
        self._at, self._bytes_done = began, 0
        self.bytes_per_second: float | None = None

    def measure(self, bytes_done: int, now: float) -> None:
        """Note how many bytes are done by then; what is too soon after the last time waits for the next."""
        seconds = now - self._at
        if seconds < MEASURED_SECONDS:
            return
        seen = (bytes_done - self._bytes_done) / seconds
        self._at, self._bytes_done = now, bytes_done
        before = seen if self.bytes_per_second is None else self.bytes_per_second
        self.bytes_per_second = before + (1 - 0.5 ** (seconds / RATE_HALF_LIFE_SECONDS)) * (seen - before)


class Paced:
    """Tells progress now and then: a line at most every so many seconds."""

    def __init__(
        self, show: Callable[[str], None], *, every_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self._every_seconds, self._clock = show, every_seconds, clock
        self._told_at = clock()
        self._rate = Rate(self._told_at)
        self._last: Progress | None = None

    def so_far(self) -> str:
        """How far it is now; empty before the first copy has ended."""
        return "" if self._last is None else told(self._last, self._rate.bytes_per_second)

    def __call__(self, progress: Progress) -> None:
        self._last, now = progress, self._clock()
        self._rate.measure(progress.bytes_done, now)
        if now - self._told_at >= self._every_seconds:
            self._told_at = now
            self._show(told(progress, self._rate.bytes_per_second))


def told(progress: Progress, bytes_per_second: float | None) -> str:
    """One line for a person: ``120 of 400 objects, 1.2 of 4.0 GB, 52.1 MB/s, 54 s to go``; a rate where it is known."""
    parts = [f"{progress.objects_done} of {progress.objects_total} objects"] if progress.objects_total else []
    parts.append(f"{_bytes(progress.bytes_done)} of {_bytes(progress.bytes_total)}")
    if bytes_per_second:
        left = (progress.bytes_total - progress.bytes_done) / bytes_per_second
        parts += [f"{_bytes(bytes_per_second)}/s", f"{_duration(left)} to go"]
    return ", ".join(parts)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
