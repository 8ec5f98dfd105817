"""What was decided from which inputs, which places rest, and which bytes were moved or refused."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from spillway.ledger.connection import Database
from spillway.ledger.schema import cool_downs, decisions, transfers
from spillway.ledger.values import DecisionRecord, Transfer
from spillway.model import CoolDown


class EvidenceStore:
    """Decisions, cool-downs and transfers; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def decisions(self, run: str) -> tuple[DecisionRecord, ...]:
        """Every decision of a run with its inputs, oldest first, those that chose nothing included."""
        found = select(decisions).where(decisions.c.run == run).order_by(decisions.c.id)
        with self.database.reading() as connection:
            rows = connection.execute(found).mappings().all()
        return tuple(DecisionRecord(**{name: row[name] for name in _names(DecisionRecord)}) for row in rows)

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

    def transfers(self, run: str | None = None) -> tuple[Transfer, ...]:
        """The lines of a run, or all, oldest first."""
        found = select(transfers).order_by(transfers.c.at, transfers.c.id)
        if run is not None:
            found = found.where(transfers.c.run == run)
        with self.database.reading() as connection:
            rows = connection.execute(found).mappings().all()
        return tuple(Transfer(**{name: row[name] for name in _names(Transfer)}) for row in rows)


def add_decision(connection: Connection, record: DecisionRecord) -> None:
    """Store a decision beside what it was taken from."""
    connection.execute(insert(decisions).values(_fields(record)))


def read_cool_downs(connection: Connection, now: datetime) -> tuple[CoolDown, ...]:
    """The places that rest at ``now``, by name."""
    resting = select(cool_downs).where(cool_downs.c.until > now).order_by(cool_downs.c.cluster, cool_downs.c.pool)
    return tuple(CoolDown(**row) for row in connection.execute(resting).mappings())


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _fields(value: CoolDown | Transfer | DecisionRecord) -> dict[str, object]:
    return {name: getattr(value, name) for name in _names(type(value))}
