"""Formats of traces: which columns of theirs are which of ours, and how a row becomes a job.

Sources of the public ones: github.com/msr-fiddle/philly-traces, github.com/S-Lab-System-Group/HeliosData,
github.com/alibaba/clusterdata (cluster-trace-gpu-v2020 and -v2023), each its README.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spillway.model import Priority
from spillway.model.demand import JobRecord
from spillway.replay.fields import ABSENT, MOST, Clock, amount, duration, number, text, whole

NO_GPU = "asked for no GPU"
NEVER_STARTED = "ended without having started"


class LeftOut(Exception):
    """A row that is sound and no job of ours; its text says why."""


Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFormat:
    """A trace that is a table with a header line: ``columns`` are theirs by ours.

    ``required`` are ours without which a row is no job. ``gpus`` gives a row's GPUs. Where ``part`` is a column, a job
    is all rows with its name, and each is told from the others by that column.
    """

    columns: Mapping[str, str]
    required: frozenset[str]
    gpus: Callable[[Row], int | None] = lambda row: whole(row, "gpus")
    part: str | None = None
    header: tuple[str, ...] | None = None

    def missing(self, header: Collection[str]) -> list[str]:
        """Columns that a file with this header lacks, by their own names."""
        lacking = [self.columns[ours] for ours in sorted(self.required) if self.columns[ours] not in header]
        ends = [self.columns[ours] for ours in ("duration_seconds", "ended_at") if ours in self.columns]
        return lacking if any(end in header or end in lacking for end in ends) else [*lacking, " or ".join(ends)]

    def named(self, header: Collection[str]) -> list[str]:
        """Our name of each column, theirs where we have none."""
        ours = {theirs: name for name, theirs in self.columns.items()}
        return [ours.get(name, name) for name in header]


def job_of(row: Row, table: TableFormat, clock: Clock) -> JobRecord:
    """The job of a row, by our names of columns.

    Raises:
        ValueError: a field that is not what it should be, or two that cannot both be true.
        LeftOut: the row is no GPU job that ran, is running or waits.
    """
    job = text(row, "job")
    if job is None:
        raise ValueError("job: expected a name, got none")
    gpus = table.gpus(row)
    if gpus is None:
        raise ValueError("gpus: expected a whole number, got none")
    if gpus == 0:
        raise LeftOut(NO_GPU)
    submitted = clock.optional(row, "submitted_at")
    started = clock.optional(row, "started_at", since=submitted)
    if submitted is None:
        raise ValueError("submitted_at: expected a moment, got none")
    ended, held = clock.optional(row, "ended_at", since=started or submitted), duration(row, "duration_seconds")
    if "started_at" not in row:
        started = submitted
    elif started is None and ended is not None:
        raise LeftOut(NEVER_STARTED)
    if ended is None and held is not None:
        started = started or submitted
        ended, held = _after(started, held), None
    return sound(
        JobRecord(
            job=job,
            submitted_at=submitted,
            gpus=gpus,
            started_at=started,
            ended_at=ended,
            nodes=whole(row, "nodes") or 1,
            priority=_priority(row),
            department=text(row, "department"),
            gpu_type=text(row, "gpu_type"),
            duration_estimate=duration(row, "estimate_seconds"),
            held_for=held,
            dataset_gib=amount(row, "dataset_gib"),
            checkpoint_gib=amount(row, "checkpoint_gib"),
        )
    )


def sound(job: JobRecord) -> JobRecord:
    """The job, if its moments are in order; ``held_for`` only where it says more than they do."""
    if job.started_at is not None and job.started_at < job.submitted_at:
        raise ValueError(f"started_at: {job.started_at:%Y-%m-%d %H:%M:%S} is before it was submitted")
    if job.started_at is None or job.ended_at is None:
        return job if job.held_for is None else replace(job, held_for=None)
    span = job.ended_at - job.started_at
    if span < timedelta():
        raise ValueError(f"ended_at: {job.ended_at:%Y-%m-%d %H:%M:%S} is before it started")
    if job.held_for is None or job.held_for == span:
        return job if job.held_for is None else replace(job, held_for=None)
    if job.held_for > span:
        raise ValueError(f"duration_seconds: {job.held_for.total_seconds():g} is more than from its start to its end")
    return job


def together(one: JobRecord, other: JobRecord) -> JobRecord:
    """Two parts of one job, which hold their GPUs from the first start to the last end."""
    starts = [at for at in (one.started_at, other.started_at) if at is not None]
    ends = [at for at in (one.ended_at, other.ended_at) if at is not None]
    return replace(
        one,
        submitted_at=min(one.submitted_at, other.submitted_at),
        gpus=one.gpus + other.gpus,
        nodes=one.nodes + other.nodes,
        started_at=min(starts, default=None),
        ended_at=max(ends) if len(ends) == 2 else None,
        gpu_type=one.gpu_type or other.gpu_type,
    )


def philly_job(entry: object, clock: Clock) -> JobRecord:
    """The job of an entry of ``cluster_job_log``: all its attempts, with the GPUs of the first.

    Raises: as ``job_of``.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("attempts"), list):
        raise ValueError("expected an object with 'jobid', 'submitted_time' and 'attempts'")
    row = {name: str(entry.get(name) or "") for name in ("jobid", "submitted_time", "vc")}
    submitted = clock.optional(row, "submitted_time")
    if row["jobid"] in ABSENT or submitted is None:
        raise ValueError("jobid, submitted_time: expected both, got " + (row["jobid"] or "no jobid"))
    attempts = [_attempt(attempt, clock, submitted) for attempt in entry["attempts"]]
    used = [attempt for attempt in attempts if attempt is not None]
    if not used:
        raise LeftOut(NEVER_STARTED)
    ended = used[-1][1]
    held = sum((end - start for start, end, _, _ in used if end is not None), timedelta())
    return sound(
        JobRecord(
            job=row["jobid"],
            submitted_at=submitted,
            gpus=used[0][2],
            started_at=used[0][0],
            ended_at=ended,
            nodes=used[0][3],
            department=text(row, "vc"),
            held_for=held if len(used) > 1 else None,
        )
    )


def _attempt(attempt: object, clock: Clock, submitted: datetime) -> tuple[datetime, datetime | None, int, int] | None:
    """Start, end, GPUs and nodes of an attempt; None for one that was not logged whole."""
    detail = (attempt.get("detail") or []) if isinstance(attempt, dict) else None
    if not isinstance(attempt, dict) or not isinstance(detail, list):
        raise ValueError("attempts: expected objects with 'start_time', 'end_time' and 'detail'")
    gpus = [server.get("gpus") for server in detail if isinstance(server, dict)]
    servers = [held for held in gpus if isinstance(held, list) and held]
    row = {name: str(attempt.get(name) or "") for name in ("start_time", "end_time")}
    start = clock.optional(row, "start_time", since=submitted)
    end = clock.optional(row, "end_time", since=start)
    if start is None or not servers:
        return None
    return start, end, sum(map(len, servers)), len(servers)


def _after(start: datetime, held: timedelta) -> datetime:
    try:
        return start + held
    except OverflowError:
        raise ValueError(f"duration_seconds: {held.total_seconds():g} seconds after its start are no moment") from None


def _priority(row: Row) -> Priority | None:
    told = text(row, "priority")
    try:
        return None if told is None else Priority(told)
    except ValueError:
        raise ValueError(f"priority: expected one of {', '.join(Priority)}, got '{told}'") from None


def _pai_gpus(row: Row) -> int:
    """Whole GPUs of a task: each of its instances takes as many as it asks percent of, rounded up."""
    asked = number("gpus", told) if (told := row.get("gpus", "")) not in ABSENT else 0.0
    if asked < 0:
        raise ValueError(f"gpus: expected a number, not less than 0, got '{told}'")
    gpus = math.ceil(asked / 100) * (whole(row, "nodes") or 1)
    if gpus > MOST:
        raise ValueError(f"gpus: {told} percent of so many instances are more than {MOST:,}")
    return gpus


_OWN = {
    "job", "submitted_at", "gpus", "duration_seconds", "started_at", "ended_at", "nodes", "priority", "department",
    "gpu_type", "estimate_seconds", "dataset_gib", "checkpoint_gib",
}  # fmt: skip
TABLES: Mapping[str, TableFormat] = {
    "csv": TableFormat(
        columns={name: name for name in _OWN},
        required=frozenset({"job", "submitted_at", "gpus"}),
    ),
    "seconds": TableFormat(
        columns={
            "job": "job_id", "submitted_at": "submit_s", "gpus": "gpus", "duration_seconds": "duration_s",
            "department": "vc",
        },
        required=frozenset({"job", "submitted_at", "gpus", "duration_seconds"}),
    ),
    "helios": TableFormat(
        columns={
            "job": "job_id", "submitted_at": "submit_time", "gpus": "gpu_num", "started_at": "start_time",
            "ended_at": "end_time", "duration_seconds": "duration", "nodes": "node_num", "department": "vc",
        },
        required=frozenset({"job", "submitted_at", "gpus", "started_at", "ended_at"}),
    ),
    "alibaba-2020": TableFormat(
        columns={
            "job": "job_name", "submitted_at": "start_time", "ended_at": "end_time", "nodes": "inst_num",
            "gpus": "plan_gpu", "gpu_type": "gpu_type",
        },
        required=frozenset({"job", "submitted_at", "ended_at", "nodes", "gpus"}),
        gpus=_pai_gpus,
        part="task_name",
        header=(
            "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
            "gpu_type",
        ),
    ),
    "alibaba-2023": TableFormat(
        columns={
            "job": "name", "submitted_at": "creation_time", "started_at": "scheduled_time",
            "ended_at": "deletion_time", "gpus": "num_gpu", "gpu_type": "gpu_spec",
        },
        required=frozenset({"job", "submitted_at", "started_at", "ended_at", "gpus"}),
    ),
}  # fmt: skip
"""By the name that ``--format`` takes; the log of Philly, ``philly``, is JSON."""
