"""Figures of demand as cells of a table, in words that are no shorter than the truth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from spillway.demand.figures import ANYBODYS, DemandFigures, PoolFigures, Whose

IDLE_NODES_NAMED = 3
JOBS_NAMED = 20
HEADER = (
    "cluster", "pool", "as of", "GPUs", "used", "free", "busy", "waiting runs", "waiting GPUs", "nodes", "idle",
    "pod start",
)  # fmt: skip
UNKNOWN = "?"
"""What nobody knows; 0 is said of what is known to be 0."""


def cells(figures: DemandFigures) -> list[list[str]]:
    """A header and a line a pool."""
    return [list(HEADER), *(_line(pool) for pool in figures.pools)]


def _line(pool: PoolFigures) -> list[str]:
    device = pool.device
    busy = UNKNOWN if device is None or device.utilisation is None else f"{device.utilisation:.0%}"
    if device is not None and pool.gpus is not None and device.gpus < pool.gpus:
        busy += f" (of {number(device.gpus)})"
    return [
        pool.cluster,
        pool.pool,
        age(pool),
        *(number(value) for value in (pool.gpus, pool.used_gpus, pool.free_gpus)),
        busy,
        *(number(value) for value in (pool.queued_runs, pool.pending_gpus, pool.nodes)),
        _idle(pool),
        "-" if pool.start_latency is None else " / ".join(map(lasting, pool.start_latency)),
    ]


def age(pool: PoolFigures) -> str:
    """How old the figures of the pool are."""
    if pool.age is None:
        return "never"
    return f"{lasting(pool.age)} ago" + (", STALE" if pool.stale else "")


def remarks(figures: DemandFigures) -> list[str]:
    """What has to be known beside the table: what is old and why, and that a sum with it is no sum of now."""
    told = [
        f"{pool.cluster}/{pool.pool}: {'unknown' if pool.age is None else 'as it was ' + lasting(pool.age) + ' ago'}: "
        f"{pool.cause}"
        for pool in figures.pools
        if pool.stale
    ]
    return [*told, totals(figures)]


def totals(figures: DemandFigures) -> str:
    """All pools together; what is stale is in it, and said to be."""
    known = [pool for pool in figures.pools if pool.gpus is not None]
    gpus, used = (sum(getattr(pool, name) or 0.0 for pool in known) for name in ("gpus", "used_gpus"))
    whose = "" if figures.whose == ANYBODYS else f" by {asked(figures.whose)}"
    stale = [f"{pool.cluster}/{pool.pool}" for pool in figures.pools if pool.stale]
    lacking = f" (not of now: {', '.join(stale)})" if stale else ""
    queued = "the queue is not known"
    if figures.queue is not None:
        queued = f"{number(sum(demand.gpus for demand in figures.queue))} waited for"
    return f"in all {number(used)} of {number(gpus)} GPUs used{whose}, {queued}{lacking}"


def asked(whose: Whose) -> str:
    """The jobs that were asked about, for people."""
    kind = f"{whose.priority} jobs" if whose.priority else "jobs"
    department = f" of {whose.department}" if whose.department else ""
    scene = f" in the scene {whose.business_scene}" if whose.business_scene else ""
    return f"{kind}{department}{scene}"


def queue_cells(figures: DemandFigures) -> list[list[str]]:
    """A header and a line for each job that waits; none where nothing waits, or nobody knows."""
    if not figures.queue:
        return []
    lines = [
        [
            demand.job or "(not ours)",
            demand.department or "-",
            number(demand.runs),
            number(demand.gpus),
            " or ".join(f"{cluster}/{pool}" for cluster, pool in sorted(demand.places)) or "-",
        ]
        for demand in figures.queue[:JOBS_NAMED]
    ]
    more = len(figures.queue) - JOBS_NAMED
    lines += [[f"and {more} more", "", "", "", ""]] if more > 0 else []
    return [["job", "department", "runs", "GPUs", "would do with"], *lines]


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """The cells as text of even columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{round(value, 2):g}" if abs(value) < 1e6 else f"{value:.0f}"


def lasting(length: timedelta) -> str:
    """A duration in its two largest units."""
    whole = max(0, round(length.total_seconds()))
    days, hours, minutes, seconds = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    first = next((index for index, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count) or "0s"


def _idle(pool: PoolFigures) -> str:
    if pool.nodes is None:
        return UNKNOWN
    named = ", ".join(f"{node.name} {lasting(node.idle)}" for node in pool.idle_nodes[:IDLE_NODES_NAMED])
    more = len(pool.idle_nodes) - IDLE_NODES_NAMED
    return f"{named} and {more} more" if more > 0 else named or "-"
