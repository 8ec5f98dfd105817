"""``history``: which jobs ran when, out to a file and in from another scheduler's log, or made up."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from spillway.commands.console import Console, check_place
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, command, days, dry_run, group, whole
from spillway.errors.counts import counted

YEARS = range(1900, 3000)
"""A day of these and all that is counted from it, in every zone, is a moment."""


def register(parser: Parser) -> None:
    """Add the commands."""
    subject = group(parser)
    words = command(subject, "export", _export, "write the ledger's runs as a trace that a replay takes")
    words.add_argument("file", metavar="FILE", type=Path, help="a CSV file, packed where its name ends in .gz")
    words.add_argument("--imported", action="store_true", help="with the jobs that were imported, as SOURCE/JOB")
    dry_run(words)
    words = command(subject, "import", _import, "keep another scheduler's jobs as history: no runs are made of them")
    words.add_argument("file", metavar="FILE", type=Path, help="a trace: plain CSV or a public format, gzip or not")
    words.add_argument("--source", metavar="NAME", required=True, help="what you call that scheduler, such as slurm")
    trace_options(words)
    dry_run(words)
    words = command(subject, "make-up", _make_up, "write a trace of jobs that never ran, like those of a real cluster")
    words.add_argument("file", metavar="FILE", type=Path, help="a CSV file, packed where its name ends in .gz")
    words.add_argument("--like", choices=("itp", "philly"), default="itp", help="whose statistics (default: itp)")
    words.add_argument(
        "--from",
        dest="first",
        type=_day,
        default=datetime(2026, 1, 1, tzinfo=UTC),
        metavar="YYYY-MM-DD",
        help="the first day (default: 2026-01-01)",
    )
    words.add_argument("--days", type=days, default=60, help="how many (default: 60)")
    words.add_argument("--seed", type=whole(0), default=1, help="the same one makes the same trace (default: 1)")
    words.add_argument("--month-end", action="store_true", help="half as many jobs more in the last week of each month")


def trace_options(words: Parser) -> None:
    """How a trace is read, for every command that reads one."""
    words.add_argument("--format", metavar="FORMAT", help="of the trace (default: what its header tells)")
    words.add_argument("--zone", type=_zone, default=UTC, metavar="ZONE", help="of moments without one (default: UTC)")
    words.add_argument(
        "--epoch", type=_day, metavar="YYYY-MM-DD", help="the day that seconds count from (default: 1970-01-01)"
    )
    words.add_argument("--leave-out-bad-rows", action="store_true", help="count rows at fault and go on without them")


def _export(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.ledger import open_ledger
    from spillway.replay.writing import write_trace

    ledger = open_ledger(installation.ledger_url())
    jobs = ledger.job_history() if options.imported else ledger.own_jobs()
    if not options.dry_run:
        write_trace(options.file, jobs)
    console.say(f"{'would write' if options.dry_run else 'wrote'} {counted(len(jobs), 'job')} to {options.file}")
    return 0


def _import(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.ledger import open_ledger
    from spillway.replay.fields import Clock
    from spillway.replay.trace import read_trace

    if not options.source or "/" in options.source or not options.source.isprintable():
        options.usage_error(f"--source: expected a name without a slash, got '{options.source}'")
    ledger = open_ledger(installation.ledger_url())
    clock = Clock(zone=options.zone) if options.epoch is None else Clock(zone=options.zone, epoch=options.epoch)
    trace = read_trace(options.file, format=options.format, clock=clock, leave_out_bad_rows=options.leave_out_bad_rows)
    counts = ledger.import_jobs(options.source, trace.jobs, dry_run=options.dry_run)
    for note in trace.notes:
        console.say(note)
    left_out: Mapping[str, int] = {**trace.left_out, "the name of a run of this installation": counts.own}
    console.say(
        f"{'would import' if options.dry_run else 'imported'} from '{options.source}' ({trace.format}): "
        f"{counts.added} new, {counts.changed} changed, {counts.same} as before"
    )
    for reason, count in left_out.items():
        if count:
            console.say(f"left out: {count} ({reason})")
    return 0


def _make_up(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.replay.synthetic import ITP_LIKE, PHILLY_LIKE, made_up
    from spillway.replay.writing import write_trace

    workload = {"itp": ITP_LIKE, "philly": PHILLY_LIKE}[options.like]
    check_place(options.file)
    month_end = 1.5 if options.month_end else 1.0
    with console.working(f"making up {counted(options.days, 'day')} of jobs"):
        jobs = made_up(workload, starts_at=options.first, days=options.days, seed=options.seed, month_end=month_end)
        write_trace(options.file, jobs)
    console.say(f"wrote {len(jobs)} made-up jobs to {options.file}")
    return 0


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise argparse.ArgumentTypeError(f"expected a zone such as Europe/Berlin, got '{name}'") from None


def _day(text: str) -> datetime:
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a day such as 2026-03-01, got '{text}'") from None
    if day.year not in YEARS:
        raise argparse.ArgumentTypeError(f"expected a day of the years {YEARS[0]} to {YEARS[-1]}, got '{text}'")
    return day
