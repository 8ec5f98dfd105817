"""A small replay whose figures can be told by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np

from spillway.replay.metrics import Orders, Place, ReplayResult, Stays
from spillway.replay.steps import HOUR, Counts, Seconds, Steps

NEVER = float("nan")


def moments(*hours: float) -> Seconds:
    return np.array(hours, dtype=np.float64) * HOUR


def counts(*values: int) -> Counts:
    return np.array(values, dtype=np.int64)


RESULT = ReplayResult(
    trace="made up",
    policy="default",
    starts_at=datetime(2026, 3, 2, tzinfo=UTC),
    measured=(0.0, 10 * HOUR),
    submitted=moments(0, 1, 2, 9),
    gpus=counts(8, 8, 4, 4),
    started=moments(0, 1.5, 2, NEVER),
    ended=moments(6, 5, 12, NEVER),
    places=(
        Place(name="onprem", cloud=False, price_per_gpu_hour=Decimal("2.5")),
        Place(name="aws", cloud=True, price_per_gpu_hour=Decimal("8.0")),
    ),
    stays=Stays(
        job=counts(0, 1, 2, 2),
        place=counts(0, 1, 1, 0),
        start=moments(0, 1.5, 2, 6.5),
        end=moments(6, 5, 6, 12),
    ),
    capacity=(
        Steps(at=moments(0), gpus=counts(8)),
        Steps(at=moments(1, 5, 6), gpus=counts(16, 8, 0)),
    ),
    orders=Orders(at=moments(1, 5, 6, 6.25, 8), place=counts(1, 1, 1, 1, 1), nodes=counts(2, -1, -1, 1, 1)),
)
