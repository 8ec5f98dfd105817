"""What each pod cost, booked once, with a trace of every correction."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, RowMapping, func, insert, select, update

from spillway.errors import Missing
from spillway.ledger.connection import Database
from spillway.ledger.schema import cost_corrections, costs, runs
from spillway.ledger.values import CostCorrection
from spillway.model import CostEntry

Change = Callable[[CostEntry], CostEntry]
"""What is corrected in a booking, its pod and its attempt left as they are."""

_FIELDS = tuple(field.name for field in dataclasses.fields(CostEntry))


class CostStore:
    """Costs and their corrections; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def book(self, entry: CostEntry) -> CostEntry:
        """The booking of this pod: ``entry`` the first time, afterwards what is on record, corrections included.

        Raises:
            Missing: no run of that attempt was opened here.
        """
        with self.database.writing() as connection:
            booked = _booked(connection, entry)
            if booked is not None:
                return booked
            run = _run(connection, entry, self.database.endpoint)
            connection.execute(insert(costs).values(run=run, **_values(entry)))
            return entry

    def correct(self, pod: CostEntry, change: Change, *, reason: str, now: datetime) -> CostEntry:
        """Change the booking of ``pod`` and keep what it was; gives it as it is then. No change leaves no trace.

        Args:
            change: pure; gets what is on record in this transaction, with all that others have corrected meanwhile.
        Raises:
            Missing: that pod was never booked.
        """
        with self.database.writing() as connection:
            before = _booked(connection, pod)
            if before is None:
                raise Missing("booking", f"{pod.attempt} ({pod.pod_uid})", self.database.endpoint, fix="book it first")
            after = change(before)
            if before != after:
                run = _run(connection, pod, self.database.endpoint)
                trace = {"run": run, "before": before, "after": after, "reason": reason, "corrected_at": now}
                connection.execute(insert(cost_corrections).values(trace))
                connection.execute(update(costs).where(*_same_pod(pod)).values(_values(after)))
            return after

    def costs(self, run: str | None = None) -> tuple[CostEntry, ...]:
        """The bookings of a run, or all, oldest start first."""
        found = select(costs).order_by(costs.c.started_at, costs.c.attempt, costs.c.cluster, costs.c.pod_uid)
        if run is not None:
            found = found.where(costs.c.run == run)
        with self.database.reading() as connection:
            return tuple(_entry(row) for row in connection.execute(found).mappings())

    def costs_between(self, start: datetime, end: datetime) -> tuple[CostEntry, ...]:
        """The bookings of whatever was reserved or ran in ``[start, end)``, oldest start first."""
        began = func.coalesce(costs.c.reserved_at, costs.c.started_at)
        order = (costs.c.started_at, costs.c.attempt, costs.c.cluster, costs.c.pod_uid)
        found = select(costs).where(began < end, costs.c.ended_at >= start).order_by(*order)
        with self.database.reading() as connection:
            return tuple(_entry(row) for row in connection.execute(found).mappings())

    def corrections(self, run: str) -> tuple[CostCorrection, ...]:
        """What was changed in a run's bookings, oldest first."""
        found = select(cost_corrections).where(cost_corrections.c.run == run).order_by(cost_corrections.c.id)
        with self.database.reading() as connection:
            rows = connection.execute(found).mappings().all()
        return tuple(
            CostCorrection(
                before=row["before"], after=row["after"], reason=row["reason"], corrected_at=row["corrected_at"]
            )
            for row in rows
        )


def _same_pod(entry: CostEntry) -> tuple[ColumnElement[bool], ...]:
    """The identity of a booking: a pod of an attempt, never a task name, which a retry would share."""
    return costs.c.cluster == entry.cluster, costs.c.pod_uid == entry.pod_uid, costs.c.attempt == entry.attempt


def _booked(connection: Connection, entry: CostEntry) -> CostEntry | None:
    row = connection.execute(select(costs).where(*_same_pod(entry))).mappings().first()
    return None if row is None else _entry(row)


def _run(connection: Connection, entry: CostEntry, endpoint: str) -> str:
    run = entry.attempt.rpartition("-")[0]
    if connection.execute(select(runs.c.run).where(runs.c.run == run)).first() is None:
        raise Missing("run", run, endpoint, fix=f"the cost of attempt '{entry.attempt}' needs its run opened first")
    return run


def _entry(row: RowMapping) -> CostEntry:
    return CostEntry(**{name: row[name] for name in _FIELDS})


def _values(entry: CostEntry) -> dict[str, object]:
    return {name: getattr(entry, name) for name in _FIELDS}
