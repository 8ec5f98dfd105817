"""Jobs that may wait for off-peak hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from spillway.deadlines import RESTART
from spillway.model import Candidate, JobSpec, Rejection
from spillway.offpeak import cheaper_from, off_peak_from, off_peak_price
from spillway.placement.context import Context
from spillway.placement.deadline import SUITS
from spillway.placement.filters import interruption, waits
from spillway.placement.reserved import reserved


class _Awaited(NamedTuple):
    """Off-peak hours of a place; ``price`` is None where they cost as much as others."""

    begins_at: datetime
    price: Decimal | None
    candidate: Candidate


def off_peak(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether the job had better wait: for the hours of this pool, or for cheaper ones of another one that suits it.

    It waits no longer than its deadline allows, and not where it is ordered, by a person or by its deadline.
    """
    if not job.off_peak_ok or context.snapshot.destination is not None:
        return None
    own = _awaited(job, candidate, context)
    if own is not None and own.begins_at <= context.snapshot.taken_at:
        return None
    awaited = own if own is not None and _in_time(job, own, context) else _elsewhere(job, candidate, context)
    if awaited is None:
        return None
    where = "here" if awaited.candidate == candidate else f"at {awaited.candidate.cluster}/{awaited.candidate.pool}"
    asks = context.price(job, candidate)
    saves = "" if awaited.price is None else f", an hour then costs {awaited.price} ({awaited.candidate.billing})"
    now = "" if asks is None or awaited.price is None else f" instead of {asks}"
    begins = awaited.begins_at.isoformat(timespec="seconds")
    return waits("off-peak", f"may wait for off-peak hours {where} from {begins} on{saves}{now}")


def _awaited(job: JobSpec, candidate: Candidate, context: Context) -> _Awaited | None:
    """The hours of the pool that are of use to the job: cheaper for all of it, or any where it declares no prices.

    Hours that have begun and are too short for it now are none to wait for: a place that is taken whenever they begin
    would keep it waiting night after night. So are those that it only fits into if it begins with them to the second.
    """
    pool, now = context.pool(candidate), context.snapshot.taken_at
    if pool.off_peak is None:
        return None
    price = off_peak_price(pool, candidate.billing)
    begins, lasting = off_peak_from(pool, now), context.occupied(job, candidate)
    if pool.off_peak.prices_per_hour:
        open_now, in_hand = begins == now, timedelta() if begins == now else RESTART
        begins = None if lasting is None else cheaper_from(pool, candidate.billing, now, lasting + in_hand)
        if open_now and begins != now:
            return None
    return None if begins is None else _Awaited(begins, price, candidate)


def _elsewhere(job: JobSpec, candidate: Candidate, context: Context) -> _Awaited | None:
    """The next hours at another place in which a bought one costs less than this one does now."""
    asks = context.price(job, candidate)
    if asks is None or not candidate.billing.bought:
        return None
    coming = context.once_for_job("off-peak", lambda: _cheaper_hours(job, context))
    return next((hours for hours in coming if hours.price is not None and hours.price < asks), None)


def _cheaper_hours(job: JobSpec, context: Context) -> Sequence[_Awaited]:
    """The coming hours of every place that suits the job and has a price for them, those that begin first first."""
    now = context.snapshot.taken_at
    found = (_awaited(job, candidate, context) for candidate in context.prices if candidate.billing.bought)
    suit = [
        hours
        for hours in found
        if hours is not None
        and hours.price is not None
        and now < hours.begins_at
        and _in_time(job, hours, context)
        and all(check(job, hours.candidate, context) is None for check in (*SUITS, interruption, reserved))
    ]
    return sorted(suit, key=lambda hours: (hours.begins_at, hours.price))


def _in_time(job: JobSpec, awaited: _Awaited, context: Context) -> bool:
    """Whether the job is done by its deadline if its data is brought then and it is lost once, with two starts."""
    schedule = context.snapshot.schedule
    if schedule is None:
        return True
    bringing = context.bringing(job, awaited.candidate.cluster)
    return awaited.begins_at + bringing + schedule.work_left + 2 * schedule.restart <= schedule.deadline
