"""Reads and writes attempts within a transaction that its caller holds."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, insert, select, update

from spillway.deadlines import ORDERED_BY, RESTART
from spillway.ledger.schema import attempts, moves, runs
from spillway.model import (
    Attempt,
    AttemptState,
    Candidate,
    JobSpec,
    MoveState,
    OpenAttempt,
    Reservation,
    Schedule,
)

OPEN = attempts.c.state != AttemptState.SETTLED
UNDER_WAY = moves.c.state.not_in([MoveState.DONE, MoveState.FAILED])
"""Moves that are not over."""
HELD = moves.c.state.in_([MoveState.ORDERED, MoveState.DRAINING])
"""Moves that hold their target for the next attempt of their run."""


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


def fetch_requester(connection: Connection, run: str) -> str | None:
    """The DAG that asked for the run, None where a person did."""
    origin = connection.execute(select(runs.c.origin).where(runs.c.run == run)).scalar()
    asked_by = (origin or {}).get("dag_id")
    return None if asked_by is None else str(asked_by)


def fetch_wait(connection: Connection, run: str) -> datetime | None:
    """Since when the run has waited for its first place; None where it has had one."""
    had = select(attempts.c.run).where(attempts.c.run == run).exists()
    since: datetime | None = connection.execute(select(runs.c.created_at).where(runs.c.run == run, ~had)).scalar()
    return since


def add_attempt(connection: Connection, attempt: Attempt) -> None:
    """Store a new attempt; its job is its run's."""
    names = (field.name for field in dataclasses.fields(Attempt) if field.name not in ("job", "candidate"))
    place = attempt.candidate
    row = {name: getattr(attempt, name) for name in names} | {"displaces": list(attempt.displaces)}
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
    opened = fetch_attempts(connection, select_attempts().where(OPEN))
    return tuple(
        dataclasses.replace(promise(a.label, a.job, a.candidate, a.started_at or a.reserved_at), displaces=a.displaces)
        for a in opened
    )


def fetch_open_attempts(connection: Connection) -> tuple[OpenAttempt, ...]:
    """Whether each open attempt may give way, and what that would lose."""
    moved = set(connection.execute(select(moves.c.run).where(UNDER_WAY)).scalars())
    off_spot = _left_spot(connection, moves.c.run.in_(select(attempts.c.run).where(OPEN)))
    opened = fetch_attempts(connection, select_attempts().where(OPEN))
    return tuple(
        OpenAttempt(
            attempt=attempt.label,
            priority=attempt.job.priority,
            interruptible=attempt.job.spot_ok,
            lease_expires_at=attempt.lease_expires_at,
            started_at=attempt.started_at if attempt.state is AttemptState.RUNNING else None,
            committed_at=attempt.committed_at,
            moving=attempt.run in moved,
            ending=attempt.ending is not None,
            left_spot=attempt.run in off_spot,
        )
        for attempt in opened
    )


def fetch_held(connection: Connection, *, but: str | None = None) -> tuple[Reservation, ...]:
    """What moves hold for the next attempts of their runs, those of ``but`` left out."""
    place = (moves.c.cluster, moves.c.pool, moves.c.billing)
    found = select(moves.c.run, moves.c.attempt, *place, runs.c.job).join(runs, moves.c.run == runs.c.run).where(HELD)
    if but is not None:
        found = found.where(moves.c.run != but)
    return tuple(
        promise(f"{run}-{attempt + 1}", job, Candidate(cluster=cluster, pool=pool, billing=billing))
        for run, attempt, cluster, pool, billing, job in connection.execute(found.order_by(moves.c.run))
    )


def _attempt(row: RowMapping) -> Attempt:
    fields = dict(row)
    place = Candidate(cluster=fields.pop("cluster"), pool=fields.pop("pool"), billing=fields.pop("billing"))
    return Attempt(candidate=place, displaces=tuple(fields.pop("displaces")), **fields)


def promise(attempt: str, job: JobSpec, place: Candidate, since: datetime | None = None) -> Reservation:
    """What an attempt of the job, named by its label, holds at the place; ``since`` is when it began to train there."""
    return Reservation(
        attempt=attempt,
        department=job.department,
        cluster=place.cluster,
        pool=place.pool,
        billing=place.billing,
        gpus_per_node=job.gpus_per_node,
        nodes=job.nodes,
        cpu_millicores_per_node=job.cpu_millicores,
        memory_mib_per_node=job.memory_mib,
        gpu_fraction=job.gpu_fraction,
        ends_at=None if since is None or job.longest is None else since + job.longest,
    )


def fetch_schedule(connection: Connection, run: str, job: JobSpec, now: datetime) -> Schedule | None:
    """By when the run has to be done and how far it is, None where its job does not say both."""
    if job.finish_within is None or job.longest is None:
        return None
    asked_at: datetime | None = connection.execute(select(runs.c.created_at).where(runs.c.run == run)).scalar()
    if asked_at is None:
        return None
    known = fetch_attempts(connection, select_attempts().where(attempts.c.run == run))
    done = sum((_kept(attempt, now) for attempt in known), timedelta()) // timedelta(seconds=1) * timedelta(seconds=1)
    schedule = first_schedule(job, asked_at, done=done)
    return (
        None
        if schedule is None
        else dataclasses.replace(schedule, moved=run in _left_spot(connection, moves.c.run == run))
    )


def first_schedule(job: JobSpec, asked_at: datetime, *, done: timedelta = timedelta()) -> Schedule | None:
    """That of a run which is asked for at that moment."""
    if job.finish_within is None or job.longest is None:
        return None
    return Schedule(
        began_at=asked_at, deadline=asked_at + job.finish_within, work=job.longest, done=done, restart=RESTART
    )


def _left_spot(connection: Connection, which: ColumnElement[bool]) -> frozenset[str]:
    """Those of the runs whose pod was asked to end for a move that a deadline ordered, whatever became of that."""
    left = select(moves.c.run, moves.c.origin).where(which, moves.c.draining_at.is_not(None))
    return frozenset(run for run, origin in connection.execute(left) if origin.get("ordered_by") == ORDERED_BY)


def _kept(attempt: Attempt, now: datetime) -> timedelta:
    """How long the attempt has trained for what it committed: its part of the steps that it did."""
    first, last, committed = attempt.first_step, attempt.last_step, attempt.committed_step
    began, ended = attempt.started_at, attempt.ended_at or now
    if first is None or last is None or committed is None or began is None or last < first:
        return timedelta()
    return max(timedelta(), ended - began) * (min(1.0, max(0, committed - first + 1) / (last - first + 1)))
