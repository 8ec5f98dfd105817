"""Demand and capacity over a while as an SVG that a page holds; what was not measured is a gap in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spillway.model import Sample
from spillway.sampling import step_start

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 960, 260, 56, 24, 12
COLOURS = {"capacity": "#4a7fd4", "used": "#3f9a57", "demand": "#c8502f"}
LEGEND = {"capacity": "GPUs that pods may use", "used": "used", "demand": "used and waited for"}
GAP = "not measured"
LABELLED = timedelta(hours=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """GPUs of all clusters together, the mean of one step."""

    capacity: float
    used: float
    demand: float


def points(averages: Sequence[Sample], clusters: Collection[str]) -> Mapping[datetime, Point]:
    """By the begin of its step; a step in which any of the clusters was never read has none."""
    found = {}
    for sample in averages:
        if set(clusters) <= {pool.cluster for pool in sample.pools}:
            used = sum(pool.used_gpus for pool in sample.pools)
            found[sample.at] = Point(
                capacity=sum(pool.gpus for pool in sample.pools), used=used, demand=used + sample.pending_gpus
            )
    return found


def chart(
    averages: Sequence[Sample], clusters: Collection[str], *, since: datetime, until: datetime, step: timedelta
) -> str:
    """The SVG of the steps from ``since`` on and before ``until``."""
    known = {at: point for at, point in points(averages, clusters).items() if since <= at < until}
    first, most = step_start(since, step), _ceiling(known)
    steps = [first + index * step for index in range(max(1, (until - first) // step))]

    def x(moment: datetime) -> float:
        return LEFT + (WIDTH - LEFT) * ((moment - first) / (steps[-1] + step - first))

    def y(gpus: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - gpus / most)

    drawn = [*_grid(steps, steps[-1] + step, most, x, y)]
    drawn += [_rectangle(x(begin), x(end)) for begin, end in _runs([at not in known for at in steps], steps, step)]
    for begin, end in _runs([at in known for at in steps], steps, step):
        part = [at for at in steps if begin <= at < end]
        for name, colour in COLOURS.items():
            line = [(x(edge), y(getattr(known[at], name))) for at in part for edge in (at, at + step)]
            if name == "used":
                area = [(line[0][0], y(0)), *line, (line[-1][0], y(0))]
                drawn.append(f'<polygon fill="{colour}" fill-opacity=".25" points="{_written(area)}"/>')
            drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{_written(line)}"/>')
    shown = f"{len(known)} of {len(steps)} steps measured"
    label = f"GPUs from {first:%Y-%m-%d %H:%M} to {steps[-1] + step:%Y-%m-%d %H:%M} UTC; {shown}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 24}" width="100%" role="img" aria-label="{label}" '
        f'font-size="11" fill="currentColor">{_HATCHED}{"".join(drawn)}{_legend()}</svg>'
    )


_HATCHED = (
    '<defs><pattern id="gap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="2" height="6" fill="#8886"/></pattern></defs>'
)


def _runs(wanted: Sequence[bool], steps: Sequence[datetime], step: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """The begin and the end of each stretch of steps that are wanted."""
    begin: datetime | None = None
    for at, good in zip(steps, wanted, strict=True):
        if good and begin is None:
            begin = at
        if not good and begin is not None:
            yield begin, at
            begin = None
    if begin is not None:
        yield begin, steps[-1] + step


def _ceiling(known: Mapping[datetime, Point]) -> float:
    """A round number of GPUs that everything is below."""
    most = max((max(point.capacity, point.demand) for point in known.values()), default=1.0) or 1.0
    unit = 10.0 ** math.floor(math.log10(most))
    return next(unit * part for part in (1, 2, 4, 5, 8, 10, 20) if unit * part >= most * 1.02)


def _grid(
    steps: Sequence[datetime], end: datetime, most: float, x: Callable[[datetime], float], y: Callable[[float], float]
) -> Iterator[str]:
    for part in range(5):
        gpus = most * part / 4
        yield f'<line x1="{LEFT}" x2="{WIDTH}" y1="{y(gpus):.1f}" y2="{y(gpus):.1f}" stroke="#8884"/>'
        yield f'<text x="{LEFT - 6}" y="{y(gpus) + 4:.1f}" text-anchor="end">{gpus:g}</text>'
    label = step_start(steps[0], LABELLED) + LABELLED
    while label < end:
        yield f'<text x="{x(label):.1f}" y="{HEIGHT - 6}" text-anchor="middle">{label:%H:%M}</text>'
        label += LABELLED


def _rectangle(left: float, right: float) -> str:
    size = f'width="{right - left:.1f}" height="{HEIGHT - TOP - BOTTOM}"'
    return f'<rect x="{left:.1f}" y="{TOP}" {size} fill="url(#gap)"><title>{GAP}</title></rect>'


def _legend() -> str:
    drawn = []
    for index, (name, words) in enumerate([*LEGEND.items(), ("gap", GAP)]):
        left, colour = LEFT + 190 * index, COLOURS.get(name, "url(#gap)")
        drawn.append(f'<rect x="{left}" y="{HEIGHT + 6}" width="14" height="10" fill="{colour}"/>')
        drawn.append(f'<text x="{left + 20}" y="{HEIGHT + 15}">{words}</text>')
    return "".join(drawn)


def _written(line: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
