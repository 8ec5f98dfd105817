"""How far an attempt has come: a small object beside its checkpoints, written by the trainer, read by whoever watches.

It is written with the first step, every so many seconds while steps go on, and with each checkpoint, so it survives the
pod, its node and its log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from spillway.checkpoints.layout import progress_key
from spillway.codec import encode, from_json
from spillway.errors import Missing
from spillway.stores.base import ObjectStore, read_all

LINE_PREFIX = "spillway-progress "
"""What begins a line of the log that tells of an event, as a JSON object."""

_NO_PROGRESS = (ValueError, OverflowError, KeyError, TypeError, AttributeError)
"""What is raised by bytes or an event that are no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """``step`` is the newest one known to have run; ``first_step`` is where the attempt began.

    ``durable_step`` is the newest committed one, of whichever attempt; None where nothing is committed yet.
    ``slowest_commit_seconds`` is of this attempt's commits, None before the first: a pod's grace must be longer.
    ``step_seconds`` is the median time of its last steps, None while it has done only a few.
    ``began_at`` is when its trainer started, ``at`` when it told this, by the clock of its node.
    """

    first_step: int
    step: int
    total_steps: int
    loss: float | None
    at: str
    durable_step: int | None = None
    slowest_commit_seconds: float | None = None
    step_seconds: float | None = None
    began_at: str | None = None

    @property
    def left(self) -> timedelta | None:
        """How long the steps that are left take, at the pace of the last ones; None where that is not known."""
        return self._lasting(self.total_steps - self.step)

    @property
    def uncommitted(self) -> timedelta | None:
        """The same for all steps that would be left if the pod were lost now: those after the newest committed one."""
        return self._lasting(
            self.total_steps - (self.first_step - 1 if self.durable_step is None else self.durable_step)
        )

    def _lasting(self, steps: int) -> timedelta | None:
        if self.step_seconds is None or self.step > self.total_steps:
            return None
        try:
            return timedelta(seconds=self.step_seconds * max(0, steps))
        except OverflowError:
            return None

    def __str__(self) -> str:
        of_all = f"step {self.step} of {self.total_steps}"
        loss = "loss unknown" if self.loss is None else f"loss {self.loss:.6g}"
        durable = "nothing committed" if self.durable_step is None else f"step {self.durable_step} committed"
        if self.left is None:
            return f"{of_all}, {loss}, {durable}, time left unknown"
        return f"{of_all}, {loss}, {durable}, about {lasting(self.left)} left at {self.step_seconds:.3g} s a step"


def write_progress(store: ObjectStore, run: str, attempt: int, progress: Progress) -> None:
    """Replace the attempt's progress; no fence is needed, for each attempt has an object of its own."""
    body = json.dumps(encode(progress)).encode()
    store.put(progress_key(run, attempt), body, size_bytes=len(body), content_type="application/json")


def said(line: str) -> Mapping[str, Any] | None:
    """The event that a line of a trainer's log tells of; None where the line is the program's own."""
    if not line.startswith(LINE_PREFIX):
        return None
    try:
        event = from_json(line.removeprefix(LINE_PREFIX))
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def step_told(event: Mapping[str, Any]) -> Progress | None:
    """The little that the event of a step tells of progress; None where it is another event."""
    try:
        return _progress({"at": "", **event}) if event["event"] == "step" else None
    except _NO_PROGRESS:
        return None


def read_progress(store: ObjectStore, run: str, attempt: int) -> Progress | None:
    """The attempt's progress; None where it has not run its first step, or where the object is not one of ours."""
    try:
        return _progress(from_json(read_all(store, progress_key(run, attempt))))
    except (Missing, *_NO_PROGRESS):
        return None


def _progress(found: Any) -> Progress:
    return Progress(
        first_step=int(found["first_step"]),
        step=int(found["step"]),
        total_steps=int(found["total_steps"]),
        loss=_number(found.get("loss")),
        at=str(found["at"]),
        durable_step=None if found.get("durable_step") is None else int(found["durable_step"]),
        slowest_commit_seconds=_seconds(found.get("slowest_commit_seconds")),
        step_seconds=_seconds(found.get("step_seconds")),
        began_at=None if found.get("began_at") is None else str(found["began_at"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _seconds(value: Any) -> float | None:
    """A number that can be a duration; OverflowError or ValueError where it cannot."""
    return None if value is None else timedelta(seconds=value).total_seconds()


def lasting(duration: timedelta) -> str:
    """The duration in the two largest units that it has: ``45 s``, ``12 min 5 s``, ``3 h 20 min``, ``2 d 4 h``."""
    seconds = round(duration.total_seconds())
    amounts = [("d", seconds // 86400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    first = next((index for index, (_, amount) in enumerate(amounts) if amount), len(amounts) - 1)
    told = amounts[first : first + 2]
    return " ".join(f"{amount} {unit}" for unit, amount in told if amount) or "0 s"
