"""Traces: histories of jobs, from files in public formats or our own."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TextIO

from spillway.errors import BadTrace, UnknownName
from spillway.model.demand import JobRecord
from spillway.replay.fields import Clock
from spillway.replay.formats import TABLES, LeftOut, TableFormat, job_of, philly_job, together

PHILLY = "philly"
FORMATS = (*TABLES, PHILLY)
SAME_ROW = "the same row once more"
FAULTY = "at fault"
_CLOCK = Clock()
_CHUNK = 1 << 20
LONGEST_ROW = 16 << 20
"""Characters; whoever packs gigabytes into one row of a few kilobytes is refused before they are in memory."""
_BETWEEN = re.compile(r"[\s,\[\]]*")
_MEND = "mend it, or leave such rows out with --leave-out-bad-rows"

_Read = tuple[int, object, JobRecord | LeftOut | ValueError]
"""A row's line, what tells it from all other rows, and its job or why it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The jobs of a history in the order of their submission.

    ``left_out`` counts the rows that are not among them, by why; ``notes`` say what was put right or assumed.
    """

    file: str
    format: str
    jobs: tuple[JobRecord, ...]
    left_out: Mapping[str, int]
    notes: tuple[str, ...] = ()


def read_trace(
    file: Path, *, format: str | None = None, clock: Clock = _CLOCK, leave_out_bad_rows: bool = False
) -> Trace:
    """The trace in a file, gzip or not; its header tells the format where it is not given.

    Rows out of order are put in order. A row that repeats an earlier one in all its values counts once. Rows that ask
    for no GPU, and jobs that ended without having started, are left out and counted. Any other fault stops it, or with
    ``leave_out_bad_rows`` leaves that row out and counts it.

    Raises:
        BadTrace: with the line, where one is at fault.
        UnknownName: a format of no known name.
    """
    if format is not None and format not in FORMATS:
        raise UnknownName("format of a trace", format, FORMATS)
    name = str(file)
    try:
        with file.open("rb") as raw:
            packed = raw.peek(2)[:2] == b"\x1f\x8b"
            with io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if packed else raw, "utf-8-sig", newline="") as stream:
                found, rows = _rows(stream, name, format, clock)
                return _trace(name, found, rows, leave_out_bad_rows=leave_out_bad_rows)
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise BadTrace(name, None, f"the gzip file is cut off or damaged ({problem})") from problem
    except UnicodeDecodeError as problem:
        raise BadTrace(name, None, "is no UTF-8 text", fix="unpack an archive first") from problem
    except OSError as problem:
        raise BadTrace(name, None, f"cannot be read: {problem.strerror or problem}") from problem


def _trace(file: str, format: str, rows: Iterator[_Read], *, leave_out_bad_rows: bool) -> Trace:
    """Every row has its place: among the jobs, with a job that it is a part or a copy of, or counted as left out."""
    seen: dict[object, tuple[int, JobRecord]] = {}
    jobs: dict[str, JobRecord] = {}
    left_out: Counter[str] = Counter()
    for line, key, outcome in rows:
        if isinstance(outcome, JobRecord) and key in seen:
            before, other = seen[key]
            if outcome == other:
                left_out[SAME_ROW] += 1
                continue
            outcome = ValueError(f"job '{outcome.job}' is in line {before} already, with other values")
        if isinstance(outcome, JobRecord):
            seen[key] = (line, outcome)
            part = jobs.get(outcome.job)
            jobs[outcome.job] = outcome if part is None else together(part, outcome)
        elif isinstance(outcome, LeftOut):
            left_out[str(outcome)] += 1
        elif leave_out_bad_rows:
            left_out[FAULTY] += 1
        else:
            raise BadTrace(file, line, str(outcome), fix=_MEND)
    if not jobs:
        told = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "only a header"
        raise BadTrace(file, None, f"has no job that can be used: {told}")
    found = list(jobs.values())
    late = sum(later.submitted_at < earlier.submitted_at for earlier, later in pairwise(found))
    notes = [f"rows that were submitted before the one above them, put in order: {late}"] if late else []
    if (table := TABLES.get(format)) is not None and "started_at" not in table.columns:
        notes.append("the format tells no starts: each job is taken to have started when it was submitted")
    return Trace(
        file=file,
        format=format,
        jobs=tuple(sorted(found, key=lambda job: job.submitted_at) if late else found),
        left_out=dict(left_out),
        notes=tuple(notes),
    )


def _rows(stream: TextIO, file: str, format: str | None, clock: Clock) -> tuple[str, Iterator[_Read]]:
    """The name of the format, and the outcome of each row."""
    start = stream.read(_CHUNK)
    if not start.strip():
        raise BadTrace(file, None, "is empty")
    if "\0" in start:
        raise BadTrace(file, None, "is no text", fix="unpack an archive first")
    if format == PHILLY or (format is None and start.lstrip()[0] in "[{"):
        return PHILLY, _philly(stream, start, file, clock)
    lines = _csv_lines(chain(_whole_lines(stream, start, file), _lines(stream, file)), file)
    line, header = next(lines)
    header = [name.strip() for name in header]
    name = format or _format_of(header, file)
    table = TABLES[name]
    if table.header is not None and len(header) == len(table.header) and table.missing(header):
        lines, header = chain([(line, header)], lines), list(table.header)
    if missing := table.missing(header):
        problem = f"format '{name}' has columns {', '.join(missing)}, which are not among {', '.join(header)}"
        raise BadTrace(file, line, problem)
    if repeated := [column for column, count in Counter(header).items() if count > 1]:
        raise BadTrace(file, line, f"column '{repeated[0]}' is there twice")
    return name, _table(lines, table, header, clock)


def _whole_lines(stream: TextIO, start: str, file: str) -> list[str]:
    lines = io.StringIO(start, newline="").readlines()
    return [*lines[:-1], lines[-1] + next(_lines(stream, file), "")]


def _lines(stream: TextIO, file: str) -> Iterator[str]:
    while line := stream.readline(LONGEST_ROW):
        if len(line) == LONGEST_ROW:
            raise BadTrace(file, None, f"has a row of {LONGEST_ROW:,} characters or more, which is none of a job")
        yield line


def _csv_lines(lines: Iterator[str], file: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the number of the line that each ends in."""
    reader = csv.reader(lines, strict=True)
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as problem:
        raise BadTrace(file, reader.line_num, f"is no CSV: {problem}") from problem


def _format_of(header: Sequence[str], file: str) -> str:
    lacking = {name: table.missing(header) for name, table in TABLES.items()}
    name = min(lacking, key=lambda known: len(lacking[known]))
    if not lacking[name]:
        return name
    problem = f"no format has these columns: {', '.join(header)}; '{name}' also has {', '.join(lacking[name])}"
    raise BadTrace(file, 1, problem, fix=f"add them, or name another format: {', '.join(FORMATS)}")


def _table(
    lines: Iterator[tuple[int, list[str]]], table: TableFormat, header: Sequence[str], clock: Clock
) -> Iterator[_Read]:
    names, width = table.named(header), len(header)
    for line, fields in lines:
        if len(fields) != width:
            yield line, None, ValueError(f"expected {width} fields, got {len(fields)}")
            continue
        row = dict(zip(names, map(str.strip, fields), strict=True))
        try:
            job = job_of(row, table, clock)
        except LeftOut as reason:
            yield line, None, reason
        except ValueError as problem:
            ours, colon, rest = str(problem).partition(":")
            yield line, None, ValueError(f"{table.columns.get(ours, ours)}{colon}{rest}")
        else:
            yield line, (job.job, row[table.part]) if table.part else job.job, job


def _philly(stream: TextIO, start: str, file: str, clock: Clock) -> Iterator[_Read]:
    """Entries of a JSON list or of objects in a row, each read as it comes: the whole is never in memory."""
    decoder, buffer, line, at = json.JSONDecoder(), start, 1, 0
    while True:
        begins = _BETWEEN.match(buffer, at).end()  # type: ignore[union-attr]  # it matches nothing, too
        line += buffer.count("\n", at, begins)
        at = begins
        try:
            entry, end = decoder.raw_decode(buffer, at)
        except json.JSONDecodeError as problem:
            more = stream.read(max(_CHUNK, len(buffer) - at)) if len(buffer) - at < LONGEST_ROW else ""
            if more:
                buffer, at = buffer[at:] + more, 0
                continue
            if at == len(buffer):
                return
            raise BadTrace(file, line + buffer.count("\n", at, problem.pos), f"is no JSON: {problem.msg}") from problem
        except RecursionError as problem:
            raise BadTrace(file, line, "is nested deeper than any log") from problem
        try:
            job = philly_job(entry, clock)
        except (LeftOut, ValueError) as reason:
            yield line, None, reason
        else:
            yield line, job.job, job
        line += buffer.count("\n", at, end)
        at = end
