"""A history as a plain CSV trace, which ``read_trace`` gives back as it was."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from spillway.errors import BadTrace
from spillway.model import JobRecord

COLUMNS = (
    "job", "submitted_at", "gpus", "started_at", "ended_at", "duration_seconds", "nodes", "priority", "department",
    "gpu_type", "estimate_seconds", "dataset_gib", "checkpoint_gib",
)  # fmt: skip


def write_trace(file: Path, jobs: Iterable[JobRecord]) -> None:
    """Write the jobs, packed where the name ends in ``.gz``; the file is whole or as it was.

    Raises:
        BadTrace: it cannot be written.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("wb") as raw:
            # No name and no moment in the header of the pack: equal jobs make an equal file.
            packed = gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) if file.suffix == ".gz" else raw
            with packed, io.TextIOWrapper(packed, "utf-8", newline="") as text:
                lines = csv.writer(text, lineterminator="\n")
                lines.writerow(COLUMNS)
                lines.writerows(map(_line, jobs))
        draft.replace(file)
    except OSError as problem:
        raise BadTrace(str(file), None, f"cannot be written: {problem.strerror}") from problem
    finally:
        draft.unlink(missing_ok=True)


def _line(job: JobRecord) -> tuple[object, ...]:
    return (
        job.job, _moment(job.submitted_at), job.gpus, _moment(job.started_at), _moment(job.ended_at),
        _seconds(job.held_for), job.nodes, job.priority, job.department, job.gpu_type, _seconds(job.duration_estimate),
        job.dataset_gib, job.checkpoint_gib,
    )  # fmt: skip


def _moment(at: datetime | None) -> str:
    return "" if at is None else at.isoformat().replace("+00:00", "Z")


def _seconds(duration: timedelta | None) -> str:
    return "" if duration is None else repr(duration.total_seconds()).removesuffix(".0")
