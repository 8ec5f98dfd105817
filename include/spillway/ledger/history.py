"""The history of jobs: the installation's own runs, and those of other schedulers that somebody imported."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    RowMapping,
    Table,
    Text,
    bindparam,
    cast,
    func,
    insert,
    select,
    update,
)

from spillway import codec
from spillway.backfills import orders_nodes
from spillway.ledger.columns import Moment, Word
from spillway.ledger.connection import Database
from spillway.ledger.queueing import SILENCE
from spillway.ledger.schema import attempts, metadata, runs, waiting
from spillway.model import AttemptState, DemandSeries, JobRecord, JobSpec, Outcome, Priority
from spillway.replay.steps import held_together

imported_jobs = Table(
    "imported_jobs",
    metadata,
    Column("source", Text, primary_key=True),
    Column("job", Text, primary_key=True),
    Column("submitted_at", Moment, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("held_seconds", Float),
    Column("priority", Word(Priority)),
    Column("department", Text),
    Column("gpu_type", Text),
    Column("estimate_seconds", Float),
)
"""``source`` is what somebody calls the scheduler that ran them. They are no runs: nothing is ever done about them."""


HOUR = timedelta(hours=1)
WRITTEN_AT_ONCE = 1000
"""Whoever else writes to the ledger waits for so many, and not for a whole import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCounts:
    """What an import does: jobs that are new, told otherwise than before, there already, and runs of our own."""

    added: int = 0
    changed: int = 0
    same: int = 0
    own: int = 0


class HistoryStore:
    """Jobs as they were; see ``store.Ledger``."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def own_jobs(self) -> tuple[JobRecord, ...]:
        """Every run that asked for GPUs and had or still wants them, in the order of their submission."""
        with self.database.reading() as connection:
            records = map(_of_run, _own(connection))
            return tuple(record for record in records if record is not None)

    def imported_jobs(self) -> Mapping[str, tuple[JobRecord, ...]]:
        """What was imported, by its source, in the order of submission."""
        with self.database.reading() as connection:
            rows = connection.execute(select(imported_jobs).order_by("source", "submitted_at", "job")).mappings().all()
        return {source: tuple(map(_record, found)) for source, found in groupby(rows, key=lambda row: row["source"])}

    def job_history(self) -> tuple[JobRecord, ...]:
        """Own and imported jobs in the order of submission; those of a source are named ``source/job``."""
        imported = [
            replace(record, job=f"{source}/{record.job}")
            for source, records in self.imported_jobs().items()
            for record in records
        ]
        return tuple(sorted((*self.own_jobs(), *imported), key=lambda record: (record.submitted_at, record.job)))

    def demanding_jobs(self, since: datetime, now: datetime) -> tuple[JobRecord, ...]:
        """Own and imported jobs that wanted GPUs after ``since``, as samples count them, in the order of submission.

        A run for which nobody asks any more wants none since its last attempt, one of a backfill that takes what is
        left over wants them from its start on, and an imported job whose end its log does not tell ends with the log.
        Imported jobs that are said to be submitted after ``now`` want none.
        """
        own = imported_jobs.c
        told = own.submitted_at <= now
        late = select(attempts.c.run).where(attempts.c.settled_at.is_(None) | (attempts.c.settled_at > since))
        recent = (runs.c.created_at > since) | waiting.c.seen_at.is_not(None) | runs.c.run.in_(late)
        lasting = select(imported_jobs).where(told, own.ended_at.is_(None) | (own.ended_at > since))
        with self.database.reading() as connection:
            found = [_demand(rows, now) for rows in _own(connection, recent)]
            last = connection.execute(select(func.max(own.submitted_at)).where(told)).scalar()
            imported = map(_record, connection.execute(lasting).mappings())
            found += [record if record.ended_at else replace(record, ended_at=last) for record in imported]
        records = (record for record in found if record is not None and (record.ended_at or now) > since)
        return tuple(sorted(records, key=lambda record: (record.submitted_at, record.job)))

    def imported_demand(self, starts_at: datetime, hours: int, now: datetime) -> DemandSeries:
        """GPUs that imported jobs wanted in each of so many hours, as ``demand`` tells those of our own clusters.

        An hour is a gap unless it lies between the first and the last submission that the logs tell: nobody knows what
        they leave out. A submission after ``now`` is a mistake, and does not tell that a log goes on until then.
        """
        own = imported_jobs.c
        ends_at = starts_at + hours * HOUR
        with self.database.reading() as connection:
            told_of = select(func.min(own.submitted_at), func.max(own.submitted_at)).where(own.submitted_at <= now)
            first, last = connection.execute(told_of).one()
            wanted = select(own.submitted_at, own.ended_at, own.gpus).where(
                own.submitted_at < ends_at, own.submitted_at <= now, own.ended_at.is_(None) | (own.ended_at > starts_at)
            )
            rows = connection.execute(wanted).all() if hours and first is not None else []
        begun = np.array([(at - starts_at).total_seconds() for at, _, _ in rows])
        ended = np.array([((at or last) - starts_at).total_seconds() for _, at, _ in rows])
        steps = held_together(begun, np.maximum(begun, ended), np.array([gpus for _, _, gpus in rows], dtype=np.int64))
        mean = steps.per_bucket(np.arange(hours + 1, dtype=np.float64) * 3600.0).tolist()
        told = [first is not None and first <= starts_at + at * HOUR <= last - HOUR for at in range(hours)]
        gpus = tuple(value if known else None for value, known in zip(mean, told, strict=True))
        return DemandSeries(starts_at=starts_at, step=HOUR, gpus=gpus)

    def import_jobs(self, source: str, records: Sequence[JobRecord], *, dry_run: bool = False) -> ImportCounts:
        """Keep jobs of another scheduler; the same ones once more change nothing, also where the first try was cut off.

        A job that the source told otherwise before, as while it ran, is from now on what is told now. One with the name
        of a run of this installation is that run, and left out. Others may write to the ledger in between.
        """
        counts = ImportCounts()
        for first in range(0, len(records), WRITTEN_AT_ONCE):
            some = {record.job: _kept(record) for record in records[first : first + WRITTEN_AT_ONCE]}
            with self.database.reading() if dry_run else self.database.writing() as connection:
                own = set(connection.execute(select(runs.c.run).where(runs.c.run.in_(some))).scalars())
                there = select(imported_jobs).where(imported_jobs.c.source == source, imported_jobs.c.job.in_(some))
                known = {row["job"]: _record(row) for row in connection.execute(there).mappings()}
                fresh = [record for job, record in some.items() if job not in own]
                added = [record for record in fresh if record.job not in known]
                changed = [record for record in fresh if record.job in known and known[record.job] != record]
                if not dry_run:
                    _write(connection, source, added, changed)
            counts = ImportCounts(
                added=counts.added + len(added),
                changed=counts.changed + len(changed),
                same=counts.same + len(fresh) - len(added) - len(changed),
                own=counts.own + len(own),
            )
        return counts


def _write(connection: Connection, source: str, added: Sequence[JobRecord], changed: Sequence[JobRecord]) -> None:
    if added:
        connection.execute(insert(imported_jobs), [{"source": source, **_row(record)} for record in added])
    if changed:
        same = (imported_jobs.c.source == bindparam("of_source")) & (imported_jobs.c.job == bindparam("of_job"))
        rows = [{"of_source": source, "of_job": record.job, **_row(record)} for record in changed]
        connection.execute(update(imported_jobs).where(same), rows)


def _own(connection: Connection, *which: ColumnElement[bool]) -> Iterator[list[RowMapping]]:
    """Each run with its attempts, oldest first; one without any has a row of its own."""
    joined = runs.outerjoin(attempts, attempts.c.run == runs.c.run).outerjoin(waiting, waiting.c.run == runs.c.run)
    found = connection.execute(
        select(
            runs.c.run, cast(runs.c.job, Text).label("job"), runs.c.origin, runs.c.created_at, runs.c.cancelled_at,
            attempts.c.number, attempts.c.state, attempts.c.outcome, attempts.c.started_at, attempts.c.ended_at,
            attempts.c.settled_at, waiting.c.seen_at,
        )
        .select_from(joined)
        .where(*which)
        .order_by(runs.c.created_at, runs.c.run, attempts.c.number)
    )  # fmt: skip
    return (list(rows) for _, rows in groupby(found.mappings(), key=lambda row: row["run"]))


@lru_cache(maxsize=1000)
def _job(text: str) -> JobSpec:
    """A job file's runs are alike, and a history has many of them."""
    return codec.decode(JobSpec, json.loads(text))


def _demand(rows: list[RowMapping], now: datetime) -> JobRecord | None:
    """A run as far as it is demand; None where it never was."""
    first, last, record = rows[0], rows[-1], _of_run(rows)
    if record is None:
        return None
    asked_for = first["seen_at"] is not None and first["seen_at"] > now - SILENCE
    if record.ended_at is None and last["state"] in {None, AttemptState.SETTLED} and not asked_for:
        trained = [row for row in rows if row["started_at"] is not None]
        if not trained:
            return None
        record = replace(record, ended_at=_ended(trained[-1]))
    if orders_nodes(_job(first["job"]), first["origin"]):
        return record
    return None if record.started_at is None else replace(record, submitted_at=record.started_at)


def _of_run(rows: list[RowMapping]) -> JobRecord | None:
    """A run by its attempts; None where it took no GPU, or ended without ever having any."""
    first, last = rows[0], rows[-1]
    job = _job(first["job"])
    trained = [row for row in rows if row["started_at"] is not None]
    over = last["state"] is AttemptState.SETTLED and not Outcome(last["outcome"]).goes_on
    over = over or (first["cancelled_at"] is not None and last["state"] in {None, AttemptState.SETTLED})
    if not job.gpus or (over and not trained):
        return None
    ended = _ended(trained[-1]) if over else None
    held = sum((_ended(row) - row["started_at"] for row in trained), timedelta()) if ended is not None else None
    return JobRecord(
        job=first["run"],
        submitted_at=first["created_at"],
        gpus=math.ceil(job.gpus),
        started_at=trained[0]["started_at"] if trained else None,
        ended_at=ended,
        nodes=job.nodes,
        priority=job.priority,
        department=job.department,
        gpu_type=job.gpu_model,
        duration_estimate=job.expected_duration,
        held_for=held if len(trained) > 1 else None,
        checkpoint_gib=job.checkpoint_gib,
    )


def _ended(row: RowMapping) -> datetime:
    """When a settled attempt that trained held its GPUs no more."""
    started: datetime = row["started_at"]
    ended: datetime = row["ended_at"] or row["settled_at"]
    return max(started, ended)


def _kept(record: JobRecord) -> JobRecord:
    """What is stored of it."""
    return replace(record, dataset_gib=None, checkpoint_gib=None)


def _row(record: JobRecord) -> dict[str, Any]:
    names = ("job", "submitted_at", "gpus", "nodes", "started_at", "ended_at", "priority", "department", "gpu_type")
    held, estimate = record.held_for, record.duration_estimate
    return {name: getattr(record, name) for name in names} | {
        "held_seconds": None if held is None else held.total_seconds(),
        "estimate_seconds": None if estimate is None else estimate.total_seconds(),
    }


def _record(row: RowMapping) -> JobRecord:
    fields = {name: value for name, value in row.items() if name not in {"source", "held_seconds", "estimate_seconds"}}
    return JobRecord(
        held_for=_seconds(row["held_seconds"]), duration_estimate=_seconds(row["estimate_seconds"]), **fields
    )


def _seconds(value: float | None) -> timedelta | None:
    return None if value is None else timedelta(seconds=value)
