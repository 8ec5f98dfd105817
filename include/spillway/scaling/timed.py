"""The rules that look at the clock on the wall: the window at the end of a month, and the hours of release."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from spillway import offpeak
from spillway.model import Contribution, OffPeak, Source
from spillway.months import Window
from spillway.scaling.rules import ScalingRules, WindowRule
from spillway.scaling.sizes import PoolSize
from spillway.windows import DAY, Iteration, coming_window, windows_between

SHRINKING = timedelta(hours=1)
"""For so long after a window its nodes leave as soon as they are idle; then as all others do."""


def window_at(rule: WindowRule, now: datetime) -> Window | None:
    """The window whose nodes are to be there now: ``[starts_at - lead, ends_at)``."""
    near = _near(rule.iteration, _day(now), rule.lead)
    return next((window for window in near if window.starts_at - rule.lead <= now < window.ends_at), None)


def next_change(rule: WindowRule, now: datetime) -> datetime:
    """When the nodes of a window are to come or to go next."""
    window = coming_window(now, rule.iteration)
    begins = window.starts_at - rule.lead
    return begins if now < begins else window.ends_at


def began_at(rules: ScalingRules, now: datetime) -> datetime | None:
    """Since when the nodes of the window of now are to be there; None outside of it, or where no rule is about one."""
    window = None if rules.window is None else window_at(rules.window, now)
    return None if window is None or rules.window is None else window.starts_at - rules.window.lead


def window_wish(
    rule: WindowRule, size: PoolSize, base_nodes: Mapping[tuple[str, str], int], now: datetime
) -> Contribution | None:
    """The nodes for a window beside those of before, the least of the pool where nobody knows these; None outside."""
    window = window_at(rule, now)
    if window is None:
        return None
    base = base_nodes.get(size.key, size.least)
    ends = window.ends_at.isoformat(timespec="seconds")
    reason = f"{rule.nodes} beside the {base} of before for the window {window.name}, until {ends}"
    return Contribution(source=Source.TIME_RULE, nodes=base + rule.nodes, reason=reason)


def release_reason(rules: ScalingRules, now: datetime) -> str | None:
    """Why idle nodes are to leave at once; None where they are not."""
    hours = rules.release_hours
    if hours is not None and _within(hours, now):
        return f"idle nodes leave between {_clock(hours.begins)} and {_clock(hours.ends)} ({hours.time_zone})"
    if rules.window is not None and window_at(rules.window, now) is None:
        for window in _near(rules.window.iteration, _day(now), rules.window.lead):
            if window.ends_at <= now < window.ends_at + SHRINKING:
                return f"the window {window.name} has ended and its nodes leave as they are idle"
    return None


def _within(hours: OffPeak, now: datetime) -> bool:
    hour = now.replace(minute=0, second=0, microsecond=0)
    return any(window.begins_at <= now < window.ends_at for window in offpeak.windows(hours, hour))


def _day(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


@lru_cache(maxsize=100)
def _near(iteration: Iteration, day: datetime, lead: timedelta) -> tuple[Window, ...]:
    """All windows that any moment of the day asks for: remembered, as a plan is made every few seconds."""
    return windows_between(day - SHRINKING - DAY, day + DAY + lead, iteration)


def _clock(since_midnight: timedelta) -> str:
    minutes = int(since_midnight.total_seconds()) // 60
    return f"{minutes // 60:02}:{minutes % 60:02}"
