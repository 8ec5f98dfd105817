"""Whether a department's budget bears one more job, month by month."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from spillway.attribution import within
from spillway.model import Budget, BudgetState, Crossing, JobSpec
from spillway.months import Month, month_of
from spillway.pricing import EXACT, cost, gpu_hours

WARNING, SPENT = 80, 100
"""Percent of a budget: from the first on somebody is told, from the second on nothing new is bought."""


def limit_of(budgets: Iterable[Budget], department: str, month: str) -> Decimal | None:
    """What the department may spend in the month; None where nobody has set a limit."""
    limits = {budget.month: budget.limit for budget in budgets if budget.department == department}
    return limits.get(month, limits.get(None))


def expected_end(job: JobSpec, started_at: datetime, now: datetime, zone: str) -> datetime:
    """Until when the job's GPUs are promised: as long as it says to take, and never less than they were used already.

    Of one that does not say how long, the end of the next month: it is unknown, not nothing, and what starts on the
    last day of a month is paid by the next one.
    """
    if job.expected_duration is None:
        return month_of(month_of(now, zone).ends_at, zone).ends_at
    return max(started_at + job.expected_duration, now)


def cost_within(
    month: Month, units: Decimal, start: datetime, end: datetime, *, price: Decimal, fixed: Decimal = Decimal(0)
) -> Decimal:
    """What GPUs, or cores, used from start to end cost in the month; ``fixed`` is a month's of each of them."""
    start, end = within(month, start, end)
    share = EXACT.divide(EXACT.multiply(gpu_hours(units, start, end), fixed), month.hours)
    return EXACT.add(cost(units, start, end, price), share)


def month_in(state: BudgetState) -> Month:
    """The month of a budget."""
    return Month(name=state.month, starts_at=state.starts_at, ends_at=state.ends_at)


def projected(state: BudgetState, now: datetime) -> Decimal:
    """What the month will have cost at its end, and no less than what is promised.

    What is still to come is spent at the pace of the month so far, and at that of the month before by the part that is
    not over yet: the first days say little.
    """
    month = month_in(state)
    elapsed = gpu_hours(1, *within(month, month.starts_at, now))
    left, spent, before = EXACT.subtract(month.hours, elapsed), state.spent, state.hourly_before
    hourly = EXACT.divide(spent, elapsed) if elapsed else Decimal(0)
    if before is not None:
        hourly = EXACT.divide(EXACT.add(spent, EXACT.multiply(before, left)), month.hours)
    return max(EXACT.add(spent, EXACT.multiply(hourly, left)), EXACT.add(state.booked, state.reserved))


def crossed(state: BudgetState) -> tuple[int, ...]:
    """The percents of its budget that the department has reached, the lowest first."""
    return tuple(p for p in (WARNING, SPENT) if state.spent > 0 and state.spent * 100 >= state.limit * p)


def notice_title(crossing: Crossing) -> str:
    """One line for a subject, without any line break that a name may hold."""
    return " ".join(f"{crossing.department} has spent {crossing.percent} % of its budget for {crossing.month}".split())


def notice_text(crossing: Crossing) -> str:
    """What happened, and what follows from it."""
    follows = (
        "Nothing new starts on bought GPUs in that month unless the limit is raised; what runs may finish."
        if crossing.percent >= SPENT
        else "Nothing is held back yet."
    )
    return (
        f"{notice_title(crossing)}: {crossing.spent:.2f} of {crossing.limit:.2f}, as of "
        f"{crossing.seen_at:%Y-%m-%d %H:%M} UTC. At this pace the month ends at {crossing.projected:.2f}. {follows}"
    )
