"""An outbox: crossed budgets, late runs and what befell node pools go on record with whom to tell.

Whoever claims a notice next delivers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, insert, select, update

from spillway.budget import crossed, projected
from spillway.ledger.budgeting import read_states
from spillway.ledger.connection import Database
from spillway.ledger.scaling_tables import scaling_alerts
from spillway.ledger.schema import attempts, crossings, late_runs, notices, runs
from spillway.model import BudgetState, Crossing, JobSpec, LateRun, Notice, Outcome, PlacementPolicy, ScalingAlert
from spillway.months import month_of

LATE = timedelta(days=1)
"""How long after the end of a month its crossings are still told."""

_CROSSING = Crossing.__slots__
_ALERT = ScalingAlert.__slots__
_LATE = ("run", "deadline", "expected_at", "seen_at")

Targets = Callable[[str], Sequence[str]]
"""The names of those who are told of a department."""


class NoticeStore:
    """Crossings and notices; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def new_crossings(self, policy: PlacementPolicy, now: datetime) -> tuple[Crossing, ...]:
        """The crossings of this month's budgets and of a day ago that are not on record yet; nothing is written."""
        with self.database.reading() as connection:
            return tuple(crossing for crossing, _ in _new(connection, policy, now))

    def note_crossings(self, policy: PlacementPolicy, now: datetime, targets: Targets) -> tuple[Crossing, ...]:
        """Put them on record, with a notice for each target; gives those that are to be told.

        One that a higher one of the same look goes beyond is put on record and not told.
        """
        with self.database.writing() as connection:
            told = []
            for crossing, last in _new(connection, policy, now):
                row = {name: getattr(crossing, name) for name in Crossing.__slots__}
                made = connection.execute(insert(crossings).values(row))
                if last:
                    told.append(crossing)
                    number = made.inserted_primary_key[0]  # type: ignore[index]
                    _add(connection, targets(crossing.department), crossing=number)
            return tuple(told)

    def unfinished(self) -> tuple[tuple[str, JobSpec], ...]:
        """The runs with a deadline that are not over, each with its job; those that are known to be late left out."""
        other = attempts.alias()
        newer = select(other.c.number).where(other.c.run == runs.c.run, other.c.number > attempts.c.number).exists()
        goes_on = attempts.c.outcome.is_(None) | attempts.c.outcome.in_([o for o in Outcome if o.goes_on])
        joined = runs.outerjoin(attempts, (attempts.c.run == runs.c.run) & ~newer)
        known = select(late_runs.c.run).where(late_runs.c.run == runs.c.run).exists()
        found = select(runs.c.run, runs.c.job).select_from(joined).where(goes_on, ~known, runs.c.cancelled_at.is_(None))
        with self.database.reading() as connection:
            rows = connection.execute(found.order_by(runs.c.run)).all()
        return tuple((run, job) for run, job in rows if job.finish_within is not None)

    def note_late(self, late: LateRun, targets: Targets) -> bool:
        """Put it on record, with a notice for each target; False where that was done before."""
        with self.database.writing() as connection:
            if connection.execute(select(late_runs.c.run).where(late_runs.c.run == late.run)).first() is not None:
                return False
            row = {name: getattr(late, name) for name in _LATE}
            connection.execute(insert(late_runs).values(row))
            _add(connection, targets(late.department), late_run=late.run)
            return True

    def note_alert(self, alert: ScalingAlert, targets: Sequence[str]) -> bool:
        """Put it on record, with a notice for each target; False where its occasion was told of before."""
        with self.database.writing() as connection:
            same = select(scaling_alerts.c.alert).where(scaling_alerts.c.alert == alert.alert)
            if connection.execute(same).first() is not None:
                return False
            connection.execute(insert(scaling_alerts).values({name: getattr(alert, name) for name in _ALERT}))
            _add(connection, targets, alert=alert.alert)
            return True

    def claim_notice(self, now: datetime, lease: timedelta, *, but: Sequence[Notice] = ()) -> Notice | None:
        """A notice that is to be delivered, for this caller alone until the lease is over; None where there is none.

        Args:
            but: those that the caller has tried already.
        """
        tried = {notice.number for notice in but}
        with self.database.writing() as connection:
            free = notices.c.claimed_until.is_(None) | (notices.c.claimed_until <= now)
            rows = connection.execute(_undelivered().where(free)).mappings()
            row = next((row for row in rows if row[notices.c.id] not in tried), None)
            if row is None:
                return None
            claimed = {"claimed_until": now + lease, "tries": row["tries"] + 1}
            connection.execute(update(notices).where(notices.c.id == row[notices.c.id]).values(claimed))
            return _notice(row, tries=row["tries"] + 1)

    def close_notice(self, notice: Notice, now: datetime, *, problem: str | None = None) -> None:
        """Put on record that it has reached its target, or why it never will: nobody sends it again."""
        self._change(notice, closed_at=now, claimed_until=None, problem=problem)

    def not_delivered(self, notice: Notice, problem: str) -> None:
        """Let it be tried again."""
        self._change(notice, claimed_until=None, problem=problem)

    def undelivered(self) -> tuple[Notice, ...]:
        """What nobody has been told yet, oldest first."""
        with self.database.reading() as connection:
            return tuple(_notice(row) for row in connection.execute(_undelivered()).mappings())

    def _change(self, notice: Notice, **columns: Any) -> None:
        with self.database.writing() as connection:
            connection.execute(update(notices).where(notices.c.id == notice.number).values(columns))


def _new(connection: Connection, policy: PlacementPolicy, now: datetime) -> list[tuple[Crossing, bool]]:
    """Crossings that are not on record, and whether each is the highest of its budget.

    Of this month and the one of a day ago: what is spent in the last minutes of a month is seen in the next one only.
    """
    months = tuple(dict.fromkeys(month_of(at, policy.time_zone) for at in (now - LATE, now)))
    found = []
    for state in read_states(connection, policy, now, (), months):
        missing = [percent for percent in crossed(state) if not _known(connection, state, percent)]
        found += [(_crossing(state, percent, now), percent == missing[-1]) for percent in missing]
    return found


def _known(connection: Connection, state: BudgetState, percent: int) -> bool:
    """Whether it was seen in this month at this limit; a raised budget is crossed anew."""
    its = (crossings.c.department == state.department) & (crossings.c.month == state.month)
    limits = connection.execute(select(crossings.c.limit).where(its, crossings.c.percent == percent)).scalars()
    # Compared as numbers: as text, which SQLite keeps, 100 and 100.00 are two.
    return any(Decimal(limit) == state.limit for limit in limits)


def _crossing(state: BudgetState, percent: int, now: datetime) -> Crossing:
    return Crossing(
        department=state.department,
        month=state.month,
        percent=percent,
        limit=state.limit,
        spent=state.spent,
        projected=projected(state, now),
        seen_at=now,
    )


def _add(connection: Connection, targets: Sequence[str], **about: Any) -> None:
    for target in dict.fromkeys(targets):
        connection.execute(insert(notices).values(target=target, tries=0, **about))


def _undelivered() -> Select[Any]:
    joined = notices.outerjoin(crossings, notices.c.crossing == crossings.c.id)
    joined = joined.outerjoin(late_runs, notices.c.late_run == late_runs.c.run)
    joined = joined.outerjoin(runs, late_runs.c.run == runs.c.run)
    joined = joined.outerjoin(scaling_alerts, notices.c.alert == scaling_alerts.c.alert)
    columns = (
        *notices.c,
        *(crossings.c[name] for name in _CROSSING),
        *(late_runs.c[name] for name in _LATE),
        *(scaling_alerts.c[name] for name in _ALERT),
        runs.c.job,
    )
    return select(*columns).select_from(joined).where(notices.c.closed_at.is_(None)).order_by(notices.c.id)


def _notice(row: RowMapping, *, tries: int | None = None) -> Notice:
    return Notice(
        number=row[notices.c.id],
        target=row[notices.c.target],
        tries=row["tries"] if tries is None else tries,
        about=_about(row),
        problem=row["problem"],
    )


def _about(row: RowMapping) -> Crossing | LateRun | ScalingAlert:
    if row[notices.c.alert] is not None:
        return ScalingAlert(**{name: row[scaling_alerts.c[name]] for name in _ALERT})
    return _late(row) if row["late_run"] is not None else _crossed(row)


def _crossed(row: RowMapping) -> Crossing:
    return Crossing(**{name: row[crossings.c[name]] for name in _CROSSING})


def _late(row: RowMapping) -> LateRun:
    job: JobSpec = row[runs.c.job]
    facts = {name: row[late_runs.c[name]] for name in _LATE}
    return LateRun(job=job.name, department=job.department, **facts)
