"""What a GPU-hour costs, and what a stretch of them did."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Context, Decimal

from spillway.model import Billing, NodePool

_EXACT = Context(prec=50)
_HOUR = Decimal(timedelta(hours=1) // timedelta(microseconds=1))


def price_per_gpu_hour(pool: NodePool, billing: Billing) -> Decimal | None:
    """The declared price, or None where there is none that can be believed.

    A price that is absent, not a number, infinite or negative is not a price; nor is 0, except for owned GPUs.
    """
    price = pool.prices_per_gpu_hour.get(billing)
    if price is None or not price.is_finite() or price < 0:
        return None
    return None if price == 0 and billing is not Billing.OWNED else price


def gpu_hours(gpus: int, started_at: datetime, ended_at: datetime) -> Decimal:
    """GPU-hours of a stretch of time, to the microsecond.

    Raises:
        ValueError: the end is before the start.
    """
    return cost(gpus, started_at, ended_at, Decimal(1))


def cost(gpus: int, started_at: datetime, ended_at: datetime, price: Decimal) -> Decimal:
    """What ``gpus`` cost from start to end at a price per GPU-hour; not rounded to any currency's unit.

    Raises:
        ValueError: the end is before the start.
    """
    if ended_at < started_at:
        raise ValueError(f"expected an end after the start {started_at.isoformat()}, got {ended_at.isoformat()}")
    microseconds = (ended_at - started_at) // timedelta(microseconds=1)
    # Multiplied first and divided once: twenty minutes at 3 an hour are 1, not 0.999...
    return _EXACT.divide(_EXACT.multiply(Decimal(gpus * microseconds), price), _HOUR)
