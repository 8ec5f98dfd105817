"""What a GPU-hour costs, and what a stretch of them did."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from decimal import Context, Decimal, InvalidOperation

from spillway.model import Billing, CostEntry, NodePool
from spillway.offpeak import cheaper_from, off_peak_price

EXACT = Context(prec=50)
"""Enough digits that no sum of a ledger loses any."""
_HOUR = Decimal(timedelta(hours=1) // timedelta(microseconds=1))


def hourly_price(pool: NodePool, billing: Billing) -> Decimal | None:
    """What another hour costs of a GPU, or of a core in a pool without GPUs: 0 where it is paid for already."""
    return Decimal(0) if pool.is_paid(billing) else declared_price(pool, billing)


def declared_price(pool: NodePool, billing: Billing) -> Decimal | None:
    """The declared price of that hour; None where there is none that can be believed.

    A price that is absent, not a number, infinite or negative is not a price; nor is 0, except for owned GPUs.
    """
    price = pool.prices_per_hour.get(billing)
    if price is None or not price.is_finite() or price < 0:
        return None
    return None if price == 0 and billing is not Billing.OWNED else price


def price_of_run(pool: NodePool, billing: Billing, now: datetime, lasting: timedelta | None) -> Decimal | None:
    """The price of an hour for what begins now: the off-peak one where all that it lasts lies in those hours."""
    usual, cheaper = hourly_price(pool, billing), off_peak_price(pool, billing)
    if usual is None or cheaper is None:
        return usual
    return min(cheaper, usual) if cheaper_from(pool, billing, now, lasting) == now else usual


def break_even_hours(on_demand: Decimal, reserved: Decimal, hours: Decimal) -> Decimal:
    """How many of the hours a GPU has to be used so that reserving it, which costs all of them, is no dearer."""
    return EXACT.divide(EXACT.multiply(hours, reserved), on_demand)


def monthly_fixed_cost(pool: NodePool, billing: Billing) -> Decimal:
    """What a GPU that is billed so, or a core in a pool without GPUs, costs a month whether it is used or not.

    Of all of the pool each bears the same, and of a contract each that is under it; 0 where nothing is declared.
    """
    of_all, contract = pool.fixed_cost_per_month, pool.reserved
    share = EXACT.divide(of_all, pool.priced_units) if of_all else of_all
    if contract is None or billing is not Billing.RESERVED:
        return share
    return EXACT.add(share, EXACT.divide(contract.cost_per_month, contract.gpus))


def monthly_due(pool: NodePool) -> Decimal:
    """What the whole pool costs a month whether it is used or not, a contract counted."""
    contract = pool.reserved
    return pool.fixed_cost_per_month if contract is None else pool.fixed_cost_per_month + contract.cost_per_month


def price_is_stale(pool: NodePool, billing: Billing, max_age: timedelta | None, now: datetime) -> bool:
    """Whether a price is older than it may be; one of which nobody says how old it is may be any age. Owned GPUs have
    no price that anybody else changes.
    """
    if max_age is None or billing is Billing.OWNED or pool.is_paid(billing):
        return False
    return pool.prices_as_of is None or now - pool.prices_as_of > max_age


def gpu_hours(gpus: Decimal | int, started_at: datetime, ended_at: datetime) -> Decimal:
    """GPU-hours of a stretch of time, to the microsecond.

    Raises:
        ValueError: the end is before the start.
    """
    return cost(gpus, started_at, ended_at, Decimal(1))


def cost(units: Decimal | int, started_at: datetime, ended_at: datetime, price: Decimal) -> Decimal:
    """What GPUs, or cores, cost from start to end at the price of an hour of one; not rounded to any currency's unit.

    Raises:
        ValueError: the end is before the start.
    """
    if ended_at < started_at:
        raise ValueError(f"expected an end after the start {started_at.isoformat()}, got {ended_at.isoformat()}")
    microseconds = (ended_at - started_at) // timedelta(microseconds=1)
    # Multiplied first and divided once: twenty minutes at 3 an hour are 1, not 0.999...
    return EXACT.divide(EXACT.multiply(EXACT.multiply(units, microseconds), price), _HOUR)


def prolonged(entry: CostEntry, ended_at: datetime) -> CostEntry:
    """The booking with another end, at the price that it was booked at.

    Raises:
        ValueError: the end is before the start.
    """
    return dataclasses.replace(
        entry,
        ended_at=ended_at,
        gpu_hours=gpu_hours(entry.gpus, entry.started_at, ended_at),
        amount=cost(entry.priced_units, entry.started_at, ended_at, entry.price_per_gpu_hour),
    )


def repriced(entry: CostEntry, price: Decimal) -> CostEntry:
    """The booking at another price of an hour."""
    amount = cost(entry.priced_units, entry.started_at, entry.ended_at, price)
    return dataclasses.replace(entry, price_per_gpu_hour=price, amount=amount)


def price_of(written: str) -> Decimal | None:
    """The price that a person writes; None where it is none that can be believed."""
    try:
        price = Decimal(written)
    except InvalidOperation:
        return None
    return price if price.is_finite() and price >= 0 else None
