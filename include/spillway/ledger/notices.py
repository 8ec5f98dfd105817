"""An outbox: crossings of budgets go on record with whom to tell, and are delivered by whoever claims them next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, insert, select, update

from spillway.budget import crossed, projected
from spillway.ledger.budgeting import read_states
from spillway.ledger.connection import Database
from spillway.ledger.schema import crossings, notices
from spillway.model import BudgetState, Crossing, Notice, PlacementPolicy
from spillway.months import month_of

LATE = timedelta(days=1)
"""How long after the end of a month its crossings are still told."""

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
                    for target in dict.fromkeys(targets(crossing.department)):
                        connection.execute(insert(notices).values(crossing=number, target=target, tries=0))
            return tuple(told)

    def claim_notice(self, now: datetime, lease: timedelta, *, but: Sequence[Notice] = ()) -> Notice | None:
        """A notice that is to be delivered, for this caller alone until the lease is over; None where there is none.

        Args:
            but: those that the caller has tried already.
        """
        tried = {(notice.number, notice.target) for notice in but}
        with self.database.writing() as connection:
            free = notices.c.claimed_until.is_(None) | (notices.c.claimed_until <= now)
            rows = connection.execute(_undelivered().where(free)).mappings()
            row = next((row for row in rows if (row["id"], row["target"]) not in tried), None)
            if row is None:
                return None
            claimed = {"claimed_until": now + lease, "tries": row["tries"] + 1}
            connection.execute(update(notices).where(_same(row["id"], row["target"])).values(claimed))
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
            connection.execute(update(notices).where(_same(notice.number, notice.target)).values(columns))


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


def _undelivered() -> Select[Any]:
    joined = notices.join(crossings, notices.c.crossing == crossings.c.id)
    order = (crossings.c.id, notices.c.target)
    return select(crossings, notices).select_from(joined).where(notices.c.closed_at.is_(None)).order_by(*order)


def _same(crossing: int, target: str) -> ColumnElement[bool]:
    return (notices.c.crossing == crossing) & (notices.c.target == target)


def _notice(row: RowMapping, *, tries: int | None = None) -> Notice:
    return Notice(
        number=row["id"],
        target=row["target"],
        tries=row["tries"] if tries is None else tries,
        crossing=Crossing(**{name: row[name] for name in Crossing.__slots__}),
        problem=row["problem"],
    )
