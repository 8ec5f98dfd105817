"""When a trainer that has trained does nothing any more, told from what was heard of it and from nothing else.

Silence counts only while it is known: where the cluster, the log or the store could not be asked the count begins anew,
and so it does for whoever begins to watch. A stall is therefore found late rather than wrongly.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.model import StallRule

LONGEST_STEP = timedelta(days=1)
"""What a trainer says beyond that is not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """``since`` when a trainer has said nothing although it could be heard; None while that is not known."""

    since: datetime | None = None

    def at(self, now: datetime, *, heard: bool | None) -> Silence:
        """The silence after one more look: ``heard`` is whether there was a sign of life, None where nobody knows."""
        if heard is None:
            return Silence()
        return Silence(since=now) if heard or self.since is None else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A silence that is too long, in words; ``over``: long enough to end the attempt."""

    reason: str
    over: bool


def judge_stall(
    silence: Silence, rule: StallRule | None, *, now: datetime, last_step: int, step_seconds: float | None
) -> Stall | None:
    """The stall that the silence is by now; None while it may be usual, or where the job knows no stalls.

    It is one from ``limit`` on, and over at twice that: between the two a person may look.

    Args:
        step_seconds: the median time of a step; None where it is not known, and ``rule.after`` counts alone.
    """
    if rule is None or silence.since is None:
        return None
    pace = timedelta(seconds=min(step_seconds or 0.0, LONGEST_STEP.total_seconds()))
    limit = max(rule.after, pace * rule.steps)
    lasted = now - silence.since
    if lasted <= limit:
        return None
    usual = "" if step_seconds is None else f", a step takes {step_seconds:.3g} s"
    quiet = f"stalled: no step after step {last_step} and no other word since {silence.since:%H:%M:%S} UTC{usual}"
    if lasted > 2 * limit:
        return Stall(reason=quiet, over=True)
    return Stall(reason=f"{quiet}; it is stopped after {silence.since + 2 * limit:%H:%M:%S} UTC", over=False)
