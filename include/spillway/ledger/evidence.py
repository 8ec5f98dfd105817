"""What was decided from which inputs, which places rest, and which bytes were moved or refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from datetime import datetime

from sqlalchemy import JSON, Connection, RowMapping, delete, false, func, insert, select, type_coerce

from spillway.ledger.connection import Database
from spillway.ledger.schema import cool_downs, decisions, runs, transfers
from spillway.ledger.values import DecisionRecord, RecentDecision, Transfer
from spillway.model import Attempt, CoolDown, Snapshot

_ORDERED = type_coerce(decisions.c.snapshot, JSON)["destination"].as_string()
"""Where a move was ordered to by the decision; NULL of any other."""


class EvidenceStore:
    """Decisions, cool-downs and transfers; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def decisions(self, run: str, *, telling: bool = False, newest: int | None = None) -> tuple[DecisionRecord, ...]:
        """The decisions of a run with their inputs, oldest first; of those without a place the last of each wait.

        Args:
            telling: only those that placed an attempt or were taken for a move, and the newest.
            newest: so many of the newest only.
        """
        found = select(decisions).where(decisions.c.run == run).order_by(decisions.c.id.desc()).limit(newest)
        if telling:
            last = select(func.max(decisions.c.id)).where(decisions.c.run == run).scalar_subquery()
            moved = _ORDERED.is_not(None)
            found = found.where(decisions.c.attempt.is_not(None) | moved | (decisions.c.id == last))
        with self.database.reading() as connection:
            rows = connection.execute(found).mappings().all()
        return tuple(map(_record, reversed(rows)))

    def decisions_between(self, since: datetime, until: datetime) -> Iterator[DecisionRecord]:
        """The decisions that were taken from ``since`` and before ``until``, of all runs, in the order of the ledger.

        Of those without a place the last of each wait. One that is replaced while others are read may be left out.
        """
        taken = (decisions.c.taken_at >= since) & (decisions.c.taken_at < until)
        return map(_record, self.database.read_in_parts(decisions, taken))

    def placed_from(self, attempt: Attempt) -> Snapshot | None:
        """The facts that the attempt was placed by; None where they are not on record any more."""
        its = (decisions.c.run == attempt.run) & (decisions.c.attempt == attempt.number)
        with self.database.reading() as connection:
            seen: Snapshot | None = connection.execute(select(decisions.c.snapshot).where(its)).scalar()
        return seen

    def recent_decisions(self, dags: Collection[str], *, by_no_dag: bool, newest: int) -> tuple[RecentDecision, ...]:
        """The newest decision of each run, without what it was taken from, the newest first.

        Args:
            dags: of runs that these DAGs asked for.
            by_no_dag: also of those that no DAG asked for.
            newest: so many of them.
        """
        asked_by = runs.c.origin["dag_id"].as_string()
        last = select(func.max(decisions.c.id)).group_by(decisions.c.run)
        found = (
            select(decisions.c.run, decisions.c.attempt, decisions.c.decision, runs.c.origin)
            .join(runs, runs.c.run == decisions.c.run)
            .where(decisions.c.id.in_(last))
            .where(asked_by.in_(dags) | (asked_by.is_(None) if by_no_dag else false()))
            .order_by(decisions.c.id.desc())
            .limit(newest)
        )
        with self.database.reading() as connection:
            return tuple(RecentDecision(**row) for row in connection.execute(found).mappings())

    def cool_down(self, place: CoolDown) -> None:
        """Let a place rest; a rest that is already on record is never shortened."""
        same = (cool_downs.c.cluster == place.cluster) & (cool_downs.c.pool == place.pool)
        with self.database.writing() as connection:
            until = connection.execute(select(cool_downs.c.until).where(same)).scalar()
            if until is None or until < place.until:
                connection.execute(delete(cool_downs).where(same))
                connection.execute(insert(cool_downs).values(_fields(place)))

    def cool_downs(self, now: datetime) -> tuple[CoolDown, ...]:
        """The places that rest at ``now``, by name."""
        with self.database.reading() as connection:
            return read_cool_downs(connection, now)

    def record_transfer(self, transfer: Transfer) -> None:
        """Add a line; each call is one transfer or one refusal."""
        with self.database.writing() as connection:
            connection.execute(insert(transfers).values(_fields(transfer)))

    def transfers(
        self, run: str | None = None, *, site: str | None = None, newest: int | None = None, **fields: object
    ) -> tuple[Transfer, ...]:
        """The lines of a run, or all, oldest first.

        Args:
            site: where they came from or went.
            newest: so many of the newest only.
            fields: of a ``Transfer``, which the lines have to equal; one that is None says nothing.
        """
        found = select(transfers).order_by(transfers.c.at.desc(), transfers.c.id.desc()).limit(newest)
        if site is not None:
            found = found.where((transfers.c.source == site) | (transfers.c.destination == site))
        for name, value in {"run": run, **fields}.items():
            if value is not None:
                found = found.where(transfers.c[name] == value)
        with self.database.reading() as connection:
            rows = connection.execute(found).mappings().all()
        return tuple(Transfer(**{name: row[name] for name in _names(Transfer)}) for row in reversed(rows))


def add_decision(connection: Connection, record: DecisionRecord) -> None:
    """Store a decision beside what it was taken from."""
    connection.execute(insert(decisions).values(_fields(record)))


def add_waiting_decision(connection: Connection, record: DecisionRecord) -> None:
    """Store a decision that found no place instead of the one just before it that found none; no order is one of them.

    A run that waits is decided for every few seconds, and each decision is as large as all that it was taken from.
    """
    newest = select(func.max(decisions.c.id)).where(decisions.c.run == record.run).scalar_subquery()
    waited = (decisions.c.id == newest) & decisions.c.attempt.is_(None) & _ORDERED.is_(None)
    connection.execute(delete(decisions).where(waited))
    add_decision(connection, record)


def read_cool_downs(connection: Connection, now: datetime) -> tuple[CoolDown, ...]:
    """The places that rest at ``now``, by name."""
    resting = select(cool_downs).where(cool_downs.c.until > now).order_by(cool_downs.c.cluster, cool_downs.c.pool)
    return tuple(CoolDown(**row) for row in connection.execute(resting).mappings())


def _record(row: RowMapping) -> DecisionRecord:
    return DecisionRecord(**{name: row[name] for name in _names(DecisionRecord)})


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _fields(value: CoolDown | Transfer | DecisionRecord) -> dict[str, object]:
    return {name: getattr(value, name) for name in _names(type(value))}
