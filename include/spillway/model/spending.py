"""Who may spend how much in clouds, how far that is spent, and what people are told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a department may spend on bought GPUs in a month such as ``2026-03``; in every month where that is None.

    The budget of a month stands in place of the one of every month.
    """

    department: str
    limit: Decimal
    month: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetState:
    """A department's budget in one month, ``[starts_at, ends_at)``, and what was spent and promised of it.

    ``booked`` is of pods that have ended, ``accrued`` what those that run have cost so far, ``reserved`` what all that
    is promised will have cost in the month, the accrued part included. ``doubt`` is why nobody knows that it is the
    right month. ``hourly_before`` is what pods of the month before have cost an hour of it; None where nothing was
    spent until then, or nobody asked.
    """

    department: str
    month: str
    starts_at: datetime
    ends_at: datetime
    limit: Decimal
    booked: Decimal
    accrued: Decimal
    reserved: Decimal
    doubt: str | None = None
    hourly_before: Decimal | None = None

    @property
    def spent(self) -> Decimal:
        return self.booked + self.accrued

    @property
    def left(self) -> Decimal:
        """What may still be promised; below 0 where what runs has cost more than was thought."""
        return self.limit - self.booked - self.reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """That a department's spending has reached so many percent of its budget for the month."""

    department: str
    month: str
    percent: int
    limit: Decimal
    spent: Decimal
    projected: Decimal
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRun:
    """That a run can no longer be done by its deadline. ``expected_at`` is when it would be, as of ``seen_at``."""

    run: str
    job: str
    department: str
    deadline: datetime
    expected_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingAlert:
    """What people are told once of a pool, whatever sees it again: ``alert`` names the occasion."""

    alert: str
    cluster: str
    pool: str
    title: str
    text: str
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTarget:
    """Somebody who is told of crossings, late runs and node pools: by mail to ``email``, or by the service of the
    Connection ``apprise``.

    One address or service, so that who was told and who was not is known of each. Of all departments where
    ``departments`` is empty. ``connection`` is that of the mail server.
    """

    name: str
    email: str | None = None
    connection: str = "smtp_default"
    apprise: str | None = None
    departments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One target that is to know of something. ``problem`` is why the last try did not reach it."""

    number: int
    target: str
    tries: int
    about: Crossing | LateRun | ScalingAlert
    problem: str | None = None
