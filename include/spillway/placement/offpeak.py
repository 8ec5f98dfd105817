"""Jobs that may wait for off-peak hours."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from spillway.model import Candidate, JobSpec, Rejection
from spillway.offpeak import cheaper_from, off_peak_from, off_peak_price
from spillway.placement.context import Context
from spillway.placement.deadline import SUITS
from spillway.placement.filters import interruption, waits


class _Awaited(NamedTuple):
    """Off-peak hours of a place; ``price`` is None where they cost as much as others."""

    begins_at: datetime
    price: Decimal | None
    candidate: Candidate


def off_peak(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether the job had better wait: for the hours of this pool, or for cheaper ones of another one that suits it.

    It waits no longer than its deadline allows, and not where somebody has ordered it to.
    """
    ordered = context.snapshot.destination
    if not job.off_peak_ok or (ordered is not None and ordered.cluster is not None):
        return None
    own = _awaited(job, candidate, context)
    if own is not None and own.begins_at <= context.snapshot.taken_at:
        return None
    awaited = own if own is not None and _in_time(own, context) else _elsewhere(job, candidate, context)
    if awaited is None:
        return None
    where = "here" if awaited.candidate == candidate else f"at {awaited.candidate.cluster}/{awaited.candidate.pool}"
    asks = context.price(job, candidate)
    saves = "" if awaited.price is None else f", an hour then costs {awaited.price} ({awaited.candidate.billing})"
    now = "" if asks is None or awaited.price is None else f" instead of {asks}"
    begins = awaited.begins_at.isoformat(timespec="seconds")
    return waits("off-peak", f"may wait for off-peak hours {where} from {begins} on{saves}{now}")


def _awaited(job: JobSpec, candidate: Candidate, context: Context) -> _Awaited | None:
    """The hours of the pool that are of use to the job: cheaper for all of it, or any where no price is said."""
    pool, now = context.pool(candidate), context.snapshot.taken_at
    price = off_peak_price(pool, candidate.billing)
    begins = off_peak_from(pool, now) if price is None else cheaper_from(pool, candidate.billing, now, job.longest)
    return None if begins is None else _Awaited(begins, price, candidate)


def _elsewhere(job: JobSpec, candidate: Candidate, context: Context) -> _Awaited | None:
    """The next hours at another place in which a bought one costs less than this one does now."""
    asks = context.price(job, candidate)
    if asks is None or not candidate.billing.bought:
        return None
    found = (_awaited(job, other, context) for other in context.prices if other.billing.bought and other != candidate)
    cheaper = [
        hours
        for hours in found
        if hours is not None
        and hours.price is not None
        and hours.price < asks
        and context.snapshot.taken_at < hours.begins_at
        and _in_time(hours, context)
        and all(check(job, hours.candidate, context) is None for check in (*SUITS, interruption))
    ]
    return min(cheaper, key=lambda hours: (hours.begins_at, hours.price), default=None)


def _in_time(awaited: _Awaited, context: Context) -> bool:
    """Whether the job is done by its deadline if it begins then and is lost once, with two starts."""
    schedule = context.snapshot.schedule
    if schedule is None:
        return True
    return awaited.begins_at + schedule.work_left + 2 * schedule.restart <= schedule.deadline
