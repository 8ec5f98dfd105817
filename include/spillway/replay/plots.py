"""Plots as inline SVG: colours by the classes of the page around them, text escaped, nothing loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

import numpy as np
import numpy.typing as npt

from spillway.replay.metrics import ReplayResult
from spillway.replay.report import Comparison
from spillway.replay.steps import HOUR

WIDTH, LEFT, RIGHT = 1080, 64, 16
POINTS = 540
Line = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where values lie within a plot: ``x`` and ``y`` are the spans of the values that it shows."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: int
    top: int = 14
    bottom: int = 26
    left: int = LEFT

    def across(self, value: float) -> float:
        return self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - self.left - RIGHT)

    def down(self, value: float) -> float:
        room = self.height - self.top - self.bottom
        return self.top + (self.y[1] - value) / (self.y[1] - self.y[0]) * room

    def path(self, xs: Line, ys: Line) -> str:
        return "M" + "L".join(f"{self.across(x):.1f},{self.down(y):.1f}" for x, y in zip(xs, ys, strict=True))

    def line(self, xs: Line, ys: Line, kind: str, title: str = "") -> str:
        return f'<path class="{kind}" d="{self.path(xs, ys)}">{_title(title)}</path>'

    def area(self, xs: Line, low: Line, high: Line, kind: str, title: str = "") -> str:
        around = self.path(np.concatenate([xs, xs[::-1]]), np.concatenate([high, low[::-1]]))
        return f'<path class="{kind}" d="{around}Z">{_title(title)}</path>'

    def grid(self, marks: Sequence[tuple[float, str]]) -> str:
        """Horizontal lines with their values on the left."""
        return "".join(
            f'<path class="grid" d="M{self.left},{self.down(at):.1f}H{WIDTH - RIGHT}"/>'
            + _text("mark", self.left - 8, self.down(at) + 4, name, anchor="end")
            for at, name in marks
        )

    def ticks(self, marks: Sequence[tuple[float, str]]) -> str:
        """Short lines below with their values."""
        foot = self.height - self.bottom
        return "".join(
            f'<path class="grid" d="M{self.across(at):.1f},{foot}v5"/>'
            + _text("mark", self.across(at), foot + 18, name, anchor="middle")
            for at, name in marks
        )


def costs(comparison: Comparison, named: Sequence[tuple[str, float, str]]) -> str:
    """A bar a policy, by (name, cloud cost, colour); the bounds are lines through all of them."""
    priced = {name: comparison.cost_of(getattr(comparison.bounds, name)) for name in _LEAST}
    least = {name: float(price) for name, price in priced.items() if price is not None}
    most = max([*(cost for _, cost, _ in named), *least.values(), 1.0])
    row = 34
    frame = Frame(x=(0, most * 1.12), y=(0, 1), height=len(named) * row + 66, top=34, left=190)
    parts = [frame.ticks([(at, _money(at)) for at in nice(0, most * 1.1, 8)])]
    for at, (name, cost, colour) in enumerate(named):
        y = frame.top + at * row
        wide = frame.across(cost) - frame.left
        box = f'x="{frame.left}" y="{y + 5}" width="{max(wide, 1):.1f}" height="{row - 12}" rx="3"'
        parts += [
            _text("name", frame.left - 10, y + 20, _short(name), anchor="end"),
            f'<rect class="bar {colour}" {box}>{_title(f"{name}: {cost:,.0f}")}</rect>',
            _text("value", frame.left + wide + 8, y + 20, _money(cost)),
        ]
    for at, (name, cost) in enumerate(least.items()):
        x, y, title = frame.across(cost), 12 + 14 * at, f"{_LEAST[name]}: {_money(cost)}"
        line = f'd="M{x:.1f},{y + 3}V{frame.height - frame.bottom}"'
        parts += [f'<path class="bound" {line}>{_title(title)}</path>', _text("mark", x + 5, y, title)]
    return svg(frame.height, parts, "Cloud cost by policy, with the least that is possible")


def waits(named: Sequence[tuple[str, ReplayResult, str]]) -> str:
    """The part of the jobs that waits longer than so many minutes, a line a policy."""
    spans = [np.sort(result.waits() / 60) for _, result, _ in named]
    longest = max((float(span[-1]) for span in spans if span.size), default=1.0)
    decades = math.ceil(math.log10(max(longest, 10.0)))
    minutes = np.logspace(-1, decades, 240)
    longer = [1 - np.searchsorted(span, minutes, side="right") / max(span.size, 1) for span in spans]
    most = max(0.01, max((float(part[0]) for part in longer), default=0.0)) * 1.08
    frame = Frame(x=(-1, decades), y=(0, most), height=300, bottom=42)
    marks = [(math.log10(at), name) for at, name in _MINUTES if -1 <= math.log10(at) <= decades]
    digits = max(0, math.ceil(-math.log10(most)) - 1)
    parts = [frame.grid([(at, f"{at:.{digits}%}") for at in nice(0, most, 5)]), frame.ticks(marks)]
    parts += [
        frame.line(np.log10(minutes), part, f"curve {colour}", name)
        for (name, _, colour), part in zip(named, longer, strict=True)
    ]
    middle = (frame.left + WIDTH - RIGHT) / 2
    parts.append(_text("mark", middle, frame.height - 4, "wait", anchor="middle"))
    return svg(frame.height, parts, "Part of the jobs that waits longer than so long, by policy")


def demand(result: ReplayResult, most: float, local_gpus: int) -> str:
    """GPUs over time: what is wanted, and what is used and paid for on-premises and in clouds, on top of each other."""
    edges, (wanted, local, used, paid) = _buckets(result), over_time(result)
    hours = (edges[:-1] + edges[1:]) / 2
    frame = Frame(x=(edges[0], edges[-1]), y=(0, most), height=190)
    ground = np.full(hours.size, float(local_gpus))
    zone = [(at, f"{when:%d %b}") for at, when in _days(result, edges[0], edges[-1])]
    parts = [
        frame.grid([(at, f"{at:,.0f}") for at in nice(0, most, 4)]),
        frame.ticks(zone),
        frame.area(hours, np.zeros(hours.size), local, "local", "used on-premises"),
        frame.area(hours, ground, ground + paid, "paid", "paid for in clouds"),
        frame.area(hours, ground, ground + np.minimum(used, paid), "used", "used in clouds"),
        frame.line(np.array([edges[0], edges[-1]]), np.full(2, float(local_gpus)), "limit", "GPUs on-premises"),
        frame.line(hours, wanted, "wanted", "wanted: running and waiting"),
    ]
    return svg(frame.height, parts, f"GPUs over time under {result.policy}")


def over_time(result: ReplayResult) -> tuple[Line, Line, Line, Line]:
    """GPUs wanted, used on-premises, used in clouds and paid for in clouds, each the mean of a span; equal shapes."""
    edges = _buckets(result)
    hours = np.diff(edges) / HOUR
    zero = np.zeros(hours.size)
    cloud = [at for at, place in enumerate(result.places) if place.cloud]
    local = [at for at, place in enumerate(result.places) if not place.cloud]
    return (
        result.wanted().per_bucket(edges) / hours,
        sum((result.used(at).per_bucket(edges) / hours for at in local), zero),
        sum((result.used(at).per_bucket(edges) / hours for at in cloud), zero),
        sum((result.capacity[at].per_bucket(edges) / hours for at in cloud), zero),
    )


def nice(low: float, high: float, count: int) -> list[float]:
    """About so many round values from the one to the other."""
    rough = (high - low) / max(count, 1)
    if not rough > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * by for by in (1, 2, 2.5, 5, 10) if power * by >= rough * 0.999)
    return [step * at for at in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def svg(height: int, parts: Sequence[str], label: str) -> str:
    """The plot; ``label`` is what it is for whoever cannot see it."""
    named = f'role="img" aria-label="{escape(label, quote=True)}"'
    return f'<svg viewBox="0 0 {WIDTH} {height}" {named}>{"".join(parts)}</svg>'


_MINUTES = (
    (0.1, "6 s"), (1, "1 min"), (10, "10 min"), (60, "1 h"), (360, "6 h"), (1440, "1 day"), (10080, "1 week"),
    (100800, "10 weeks"),
)  # fmt: skip


_LEAST = {"fluid": "no waits, free moves", "placement": "no waits, no moves"}


def _text(kind: str, x: float, y: float, words: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" text-anchor="{anchor}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _buckets(result: ReplayResult) -> Line:
    begins, ends = result.measured
    return np.linspace(begins, max(ends, begins + HOUR), POINTS + 1)


def _days(result: ReplayResult, begins: float, ends: float) -> list[tuple[float, datetime]]:
    """Midnights, about eight of them."""
    starts = result.starts_at.astimezone(UTC)
    first = starts + timedelta(seconds=begins)
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    step = max(1, round((ends - begins) / 86400 / 8))
    found = []
    while (at := (day - starts).total_seconds()) <= ends:
        if at >= begins:
            found.append((at, day))
        day += timedelta(days=step if at >= begins else 1)
    return found


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def _money(value: float) -> str:
    for size, name in ((1e9, "bn"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value:,.0f}"


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
