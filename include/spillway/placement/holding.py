"""Jobs that wait for on-premises before they buy."""

from __future__ import annotations

from spillway.model import Candidate, JobSpec, Rejection
from spillway.placement.context import Context
from spillway.placement.deadline import SUITS
from spillway.placement.filters import waits
from spillway.scaling.waiting import hold_until

HOLD = "hold"
"""The rule of a place that the job does not pay for yet."""


def hold(job: JobSpec, candidate: Candidate, context: Context) -> Rejection | None:
    """Whether the job waits for on-premises; none does that could not run there, or is ordered somewhere.

    What is reserved and paid for already costs nothing more, so nobody waits for something else.
    """
    snapshot, rules = context.snapshot, context.policy.waiting
    if rules is None or snapshot.waits_since is None or snapshot.destination is not None:
        return None
    if not candidate.billing.bought or context.pool(candidate).is_paid(candidate.billing):
        return None
    until = hold_until(job, snapshot.waits_since, rules, snapshot.schedule)
    if until <= snapshot.taken_at or not _at_home(job, context):
        return None
    return waits(HOLD, f"waits for on-premises until {until.isoformat(timespec='seconds')} before it buys")


def _at_home(job: JobSpec, context: Context) -> bool:
    """Whether on-premises ever has a place for it."""
    return context.once_for_job(
        "at home",
        lambda: any(
            not place.billing.bought and all(check(job, place, context) is None for check in SUITS)
            for place in context.prices
        ),
    )
