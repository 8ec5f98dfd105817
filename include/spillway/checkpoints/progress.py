"""How far an attempt has come: a small object beside its checkpoints, written by the trainer, read by whoever watches.

It is written at the first step and with each checkpoint, so it survives the pod, its node and its log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from spillway.checkpoints.layout import progress_key
from spillway.codec import encode
from spillway.errors import Missing
from spillway.stores.base import ObjectStore, read_all


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """``step`` is the newest one known to have run; ``first_step`` is where the attempt began.

    ``durable_step`` is the newest committed one, of whichever attempt; None where nothing is committed yet.
    ``slowest_commit_seconds`` is of this attempt's commits, None before the first: a pod's grace must be longer.
    """

    first_step: int
    step: int
    total_steps: int
    loss: float | None
    at: str
    durable_step: int | None = None
    slowest_commit_seconds: float | None = None


def write_progress(store: ObjectStore, run: str, attempt: int, progress: Progress) -> None:
    """Replace the attempt's progress; no fence is needed, for each attempt has an object of its own."""
    body = json.dumps(encode(progress)).encode()
    store.put(progress_key(run, attempt), body, size_bytes=len(body), content_type="application/json")


def read_progress(store: ObjectStore, run: str, attempt: int) -> Progress | None:
    """The attempt's progress; None where it has not run its first step, or where the object is not one of ours."""
    try:
        found: Any = json.loads(read_all(store, progress_key(run, attempt)))
        return Progress(
            first_step=int(found["first_step"]),
            step=int(found["step"]),
            total_steps=int(found["total_steps"]),
            loss=_number(found.get("loss")),
            at=str(found["at"]),
            durable_step=None if found.get("durable_step") is None else int(found["durable_step"]),
            slowest_commit_seconds=_number(found.get("slowest_commit_seconds")),
        )
    except Missing:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
