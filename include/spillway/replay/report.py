"""A comparison of policies on one trace: as a table, as JSON, and as one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from spillway.codec import encode
from spillway.errors.counts import counted
from spillway.replay.bounds import Bounds
from spillway.replay.metrics import Figures, ReplayResult, figures

HEADER = (
    "POLICY", "CLOUD COST", "x BOUND", "PAID GPU-H", "USED GPU-H", "IDLE", "WAIT MEAN", "P50", "P95", "P99", "RESPONSE",
    "LOCAL USE", "MOVES", "FLAPS", "INTERRUPTED", "LOST GPU-H",
)  # fmt: skip
"""Waits are in minutes, the response in hours; idle is of the cloud, and x BOUND is what is paid by the lower bound."""
BOUND_ROWS = {"placement": "least without waits and moves", "fluid": "least without waits, moves are free"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """What policies came to on one trace, first the one that others are compared with, and the least they could.

    ``figures`` are those of each result. ``cloud_price_per_gpu_hour`` is what bounds are priced at. ``notes`` are what
    a reader should know of the trace, such as what was left out.
    """

    results: Sequence[ReplayResult]
    figures: Sequence[Figures]
    bounds: Bounds
    local_gpus: int
    cloud_price_per_gpu_hour: Decimal
    notes: Sequence[str] = ()

    @property
    def trace(self) -> str:
        return self.results[0].trace

    def moment(self, seconds: float) -> datetime:
        """When that is by the calendar of the trace."""
        return self.results[0].starts_at + timedelta(seconds=seconds)

    def cost_of(self, gpu_hours: float | None) -> Decimal | None:
        """What so many cloud GPU-hours cost."""
        if gpu_hours is None:
            return None
        return (Decimal(gpu_hours) * self.cloud_price_per_gpu_hour).quantize(Decimal("0.01"))

    def over_bound(self, found: Figures) -> float | None:
        """How many times the cloud GPU-hours of the placement bound were paid for; None where there is none, or 0."""
        least = self.bounds.placement
        return found.cloud_gpu_hours_paid / least if least else None

    def remarks(self) -> tuple[str, ...]:
        """The notes, and the jobs that policies left waiting or running when the replay ended."""
        left = [
            f"{found.policy}: when the replay ended, {counted(found.unstarted, 'job', form=',')} had not started and "
            f"{found.unfinished:,} not ended; what waits is left so after 7 quiet days"
            for found in self.figures
            if found.unfinished
        ]
        return (*self.notes, *left)


def compared(
    results: Sequence[ReplayResult],
    bounds: Bounds,
    *,
    local_gpus: int,
    cloud_price_per_gpu_hour: Decimal,
    notes: Sequence[str] = (),
) -> Comparison:
    """The comparison of results of one trace, at least one."""
    return Comparison(
        results=tuple(results),
        figures=tuple(map(figures, results)),
        bounds=bounds,
        local_gpus=local_gpus,
        cloud_price_per_gpu_hour=cloud_price_per_gpu_hour,
        notes=tuple(notes),
    )


def rows(comparison: Comparison) -> list[tuple[str | None, ...]]:
    """The cells beneath ``HEADER``, a policy a row and then the bounds; what is not known is None."""
    cells = [_row(comparison, found) for found in comparison.figures]
    for name, title in BOUND_ROWS.items():
        least = getattr(comparison.bounds, name)
        cells.append((title, _whole(comparison.cost_of(least)), None, _whole(least), *[None] * (len(HEADER) - 4)))
    return cells


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison for a program: figures by policy, money as decimal text."""
    begins, ends = comparison.results[0].measured
    policies = [
        {
            **encode(found),
            "cloud_utilisation": found.cloud_utilisation,
            "paid_over_bound": comparison.over_bound(found),
        }
        for found in comparison.figures
    ]
    return {
        "trace": comparison.trace,
        "measured": [comparison.moment(begins).isoformat(), comparison.moment(ends).isoformat()],
        "local_gpus": comparison.local_gpus,
        "bounds": {
            name: {"cloud_gpu_hours": least, "cloud_cost": encode(comparison.cost_of(least))}
            for name in BOUND_ROWS
            for least in [getattr(comparison.bounds, name)]
        },
        "policies": policies,
        "notes": list(comparison.remarks()),
    }


def _row(comparison: Comparison, found: Figures) -> tuple[str | None, ...]:
    return (
        found.policy,
        _whole(found.cloud_cost),
        _digits(comparison.over_bound(found), 2),
        _whole(found.cloud_gpu_hours_paid),
        _whole(found.cloud_gpu_hours_used),
        _percent(found.cloud_idle),
        _digits(found.wait_mean_minutes, 2),
        _digits(found.wait_p50_minutes, 1),
        _digits(found.wait_p95_minutes, 1),
        _digits(found.wait_p99_minutes, 1),
        _digits(found.response_mean_hours, 2),
        _percent(found.local_utilisation),
        f"{found.moves:,}",
        f"{found.flaps:,}",
        f"{found.interruptions:,}",
        _whole(found.lost_gpu_hours),
    )


def _whole(value: float | Decimal | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _digits(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1%}"
