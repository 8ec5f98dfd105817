"""Reads and writes attempts within a transaction that its caller holds."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, Select, insert, select, update

from spillway.ledger.schema import attempts, runs
from spillway.model import Attempt, AttemptState, Candidate, JobSpec, Reservation

OPEN = attempts.c.state != AttemptState.SETTLED


def select_attempts() -> Select[tuple[object, ...]]:
    """Attempts with their run's job, oldest first."""
    joined = attempts.join(runs, attempts.c.run == runs.c.run)
    order = (attempts.c.reserved_at, attempts.c.run, attempts.c.number)
    return select(attempts, runs.c.job).select_from(joined).order_by(*order)


def fetch_attempts(connection: Connection, found: Select[tuple[object, ...]]) -> tuple[Attempt, ...]:
    """The attempts that a ``select_attempts`` gives."""
    return tuple(_attempt(row) for row in connection.execute(found).mappings())


def fetch_attempt(connection: Connection, run: str, number: int) -> Attempt | None:
    """That attempt, None when there is none."""
    found = select_attempts().where(attempts.c.run == run, attempts.c.number == number)
    return next(iter(fetch_attempts(connection, found)), None)


def fetch_open(connection: Connection, run: str) -> Attempt | None:
    """The one attempt of a run that is not settled, None when there is none."""
    found = select_attempts().where(attempts.c.run == run, OPEN)
    return next(iter(fetch_attempts(connection, found)), None)


def fetch_job(connection: Connection, run: str) -> JobSpec | None:
    """The job that a run was opened with, None for a run that never was."""
    job: JobSpec | None = connection.execute(select(runs.c.job).where(runs.c.run == run)).scalar()
    return job


def add_attempt(connection: Connection, attempt: Attempt) -> None:
    """Store a new attempt; its job is its run's."""
    names = (field.name for field in dataclasses.fields(Attempt) if field.name not in ("job", "candidate"))
    place = attempt.candidate
    row = {name: getattr(attempt, name) for name in names}
    connection.execute(insert(attempts).values(cluster=place.cluster, pool=place.pool, billing=place.billing, **row))


def write_attempt(connection: Connection, stored: Attempt, **columns: Any) -> Attempt:
    """Change columns of an attempt, those that are given and not None; gives the attempt as it is then."""
    known = {name: value for name, value in columns.items() if value is not None}
    if not known:
        return stored
    same = (attempts.c.run == stored.run) & (attempts.c.number == stored.number)
    connection.execute(update(attempts).where(same).values(known))
    return dataclasses.replace(stored, **known)


def extend_lease(connection: Connection, stored: Attempt, until: datetime) -> Attempt:
    """Let an open attempt's lease last to ``until`` at least; gives the attempt as it is then."""
    if stored.state is AttemptState.SETTLED or stored.lease_expires_at >= until:
        return stored
    return write_attempt(connection, stored, lease_expires_at=until)


def fetch_reservations(connection: Connection) -> tuple[Reservation, ...]:
    """What every open attempt holds; a settled one holds nothing."""
    return tuple(_reservation(attempt) for attempt in fetch_attempts(connection, select_attempts().where(OPEN)))


def _attempt(row: RowMapping) -> Attempt:
    fields = dict(row)
    place = Candidate(cluster=fields.pop("cluster"), pool=fields.pop("pool"), billing=fields.pop("billing"))
    return Attempt(candidate=place, **fields)


def _reservation(attempt: Attempt) -> Reservation:
    return Reservation(
        attempt=attempt.label,
        department=attempt.job.department,
        cluster=attempt.candidate.cluster,
        pool=attempt.candidate.pool,
        billing=attempt.candidate.billing,
        gpus_per_node=attempt.job.gpus_per_node,
        nodes=attempt.job.nodes,
    )
