"""``runs``: which runs there are, how one went, and start, cancel, migrate, sweep."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from spillway.checkpoints.progress import read_progress
from spillway.commands import migration
from spillway.commands.console import Console
from spillway.commands.ending import exit_code
from spillway.commands.installation import Installation, run_record
from spillway.commands.parsing import Parser, at_least_one, command, dry_run, group, seconds
from spillway.errors import SpillwayError
from spillway.ledger import RunRecord
from spillway.model import Attempt, JobSpec, Outcome
from spillway.runs.cancelling import cancel_run
from spillway.runs.carrying import carry
from spillway.runs.deadline import outlook, schedule_of
from spillway.runs.evidence import evidence
from spillway.runs.identity import open_generation
from spillway.runs.migrating import story
from spillway.runs.planning import plan
from spillway.runs.services import Services
from spillway.runs.sweeping import sweep

ORIGIN = "command line"


def register(parser: Parser) -> None:
    """Add the commands."""
    subject = group(parser)
    parser = command(subject, "list", _list, "the latest runs, newest last", json=True)
    parser.add_argument("--limit", type=at_least_one, default=20, help="how many (default: 20)")
    parser = command(subject, "show", _show, "each attempt of a run; with --json its whole evidence", json=True)
    parser.add_argument("run", metavar="RUN")
    parser = command(subject, "start", _start, "carry a job to its end from this process, or go on with its open run")
    parser.add_argument("job", metavar="JOB", help="a job file's name, or a path with a slash")
    parser.add_argument("--name", help="another run of the job beside the one that is open (default: the job's name)")
    parser.add_argument("--poll-seconds", type=seconds, default=5.0, help="between two looks at the pod (default: 5)")
    dry_run(parser)
    parser = command(subject, "cancel", _cancel, "end a run: its pod with its grace, or its waiting")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--reason", default="cancelled from the command line", help="kept in the ledger")
    dry_run(parser)
    migration.register(subject)
    parser = command(
        subject,
        "sweep",
        _sweep,
        "put right what nobody looks after: leases, pods without an owner, bookings, what ended long ago",
    )
    dry_run(parser)


def _list(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    rows = [_row(record, services.ledger.attempts(record.run)) for record in services.ledger.runs()[-options.limit :]]
    if options.json:
        console.data(rows)
    else:
        console.table([key.upper().replace("_", " ") for key in _row_keys()], [list(row.values()) for row in rows])
    return 0


def _row_keys() -> tuple[str, ...]:
    return ("run", "job", "created_at", "attempts", "state", "cluster", "committed_step")


def _row(record: RunRecord, attempts: tuple[Attempt, ...]) -> dict[str, object]:
    last = attempts[-1] if attempts else None
    committed = [attempt.committed_step for attempt in attempts if attempt.committed_step is not None]
    values = (
        record.run,
        record.job.name,
        f"{record.created_at:%Y-%m-%dT%H:%M:%SZ}",
        len(attempts),
        _run_state(record, last),
        None if last is None else last.candidate.cluster,
        committed[-1] if committed else None,
    )
    return dict(zip(_row_keys(), values, strict=True))


def _state(attempt: Attempt) -> str:
    return str(attempt.outcome or attempt.state)


def _run_state(record: RunRecord, last: Attempt | None) -> str:
    """That of the last attempt; of a run that waits for one, whether it still does."""
    waits = last is None or (last.outcome is not None and last.outcome.goes_on)
    if waits and record.cancelled_at is not None:
        return str(Outcome.CANCELLED)
    return "waiting" if last is None else _state(last)


def _show(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    record = run_record(services, options.run)
    if options.json:
        console.data(evidence(services, record.run))
        return 0
    asked = ", ".join(f"{key} {value}" for key, value in record.origin.items())
    console.say(
        f"run {record.run} of job {record.job.name}, opened {record.created_at:%Y-%m-%d %H:%M:%S} UTC ({asked})"
    )
    console.table(
        ("ATTEMPT", "PLACE", "NODE", "RESUMED FROM", "STEPS", "COMMITTED", "STATE", "REASON"),
        [_attempt_row(attempt) for attempt in services.ledger.attempts(record.run)],
    )
    if (progress := _progress(services, record.run)) is not None:
        console.say(progress)
    if record.cancelled_at is not None:
        console.say(f"cancelled {record.cancelled_at:%Y-%m-%d %H:%M:%S} UTC: {record.cancel_reason}")
    for move in services.ledger.moves(record.run):
        console.say(story(move))
    costs = services.ledger.costs(record.run)
    hours = sum(entry.gpu_hours for entry in costs)
    console.say(f"booked: {hours:.4f} GPU-hours, {sum(entry.amount for entry in costs):.4f} in money")
    return 0


def _progress(services: Services, run: str) -> str | None:
    """How far the run's open attempt is, and when it has to be done; None where none is open, or nothing is known."""
    attempt = services.ledger.open_attempt(run)
    if attempt is None:
        return None
    try:
        progress = read_progress(services.checkpoints(attempt), run, attempt.number)
    except SpillwayError as problem:
        return f"attempt {attempt.number}: how far it is is not known now: {problem}"
    now = services.clock()
    schedule = schedule_of(services, attempt, progress, now)
    told = [] if progress is None else [f"{progress}, told {progress.at:.19} UTC"]
    told += [] if schedule is None else [outlook(schedule, progress, now)]
    return f"attempt {attempt.number}: {'; '.join(told)}" if told else None


def _attempt_row(attempt: Attempt) -> tuple[object, ...]:
    place = attempt.candidate
    steps = None if attempt.first_step is None else f"{attempt.first_step}..{attempt.last_step or ''}"
    return (
        attempt.number,
        f"{place.cluster}/{place.pool}/{place.billing}",
        attempt.node,
        attempt.resumed_from_step,
        steps,
        attempt.committed_step,
        _state(attempt),
        attempt.reason,
    )


def _start(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """1 where the run failed, or with ``--dry-run`` would."""
    services = installation.services()
    job = installation.job(options.job, services.configuration.datasets)
    if options.dry_run:
        planned = plan(services, job)
        console.say(planned.text)
        return 1 if planned.fails else 0
    run = open_generation(services, job, {"started_by": ORIGIN, "name": options.name or job.name})
    try:
        console.tell(f"run {run}")
        with console.working(f"run {run}") as say:
            last = carry(services, run, job, say, poll_seconds=options.poll_seconds)
    except (KeyboardInterrupt, BrokenPipeError) as ending:
        console.complain(_how_to_go_on(services, run, job, options))
        return exit_code(ending) if isinstance(ending, KeyboardInterrupt) else 1
    console.tell(f"run {run} succeeded with attempt {last.number}, last step {last.last_step}")
    return 0


def _how_to_go_on(services: Services, run: str, job: JobSpec, options: argparse.Namespace) -> str:
    again = f"runs start {options.job}" + (f" --name {options.name}" if options.name else "")
    attempt = services.ledger.open_attempt(run)
    if attempt is None:
        return f"interrupted; run {run} has no pod. `{again}` goes on, `runs cancel {run}` ends it"
    return (
        f"interrupted; run {run} was left as it is, attempt {attempt.number} at {attempt.candidate.cluster}. "
        f"`{again}` goes on with it, `runs cancel {run}` ends it; "
        f"after {attempt.lease_expires_at:%H:%M:%S} UTC a sweep may stop its pod"
    )


def _cancel(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    run = run_record(services, options.run).run
    last = next(reversed(services.ledger.attempts(run)), None)
    if last is not None and last.outcome is Outcome.SUCCEEDED:
        console.say(f"run {run} has succeeded: nothing to do")
    elif options.dry_run:
        what = "its waiting"
        if last is not None and last.outcome is None:
            what = f"attempt {last.number} at {last.candidate.cluster} ({last.state})"
        console.say(f"run {run}: would end {what}, no attempt would follow")
    else:
        with console.working(f"ending run {run}") as say:
            cancel_run(services, run, options.reason, say)
    return 0


def _sweep(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """1 where something could not be put right."""
    services = installation.services()
    with console.working("asking every cluster for its pods") as say:
        swept = sweep(services, _may_be_alive, say, dry_run=options.dry_run)
    for entry in swept if options.dry_run else ():
        console.say(f"{entry.attempt} at {entry.cluster} would be {entry.remedy}: {entry.reason}")
    if not swept:
        console.say("nothing to put right")
    return 1 if any(not entry.done for entry in swept) and not options.dry_run else 0


def _may_be_alive(origin: Mapping[str, Any]) -> bool:
    """Only Airflow knows whether its own tasks live; the sweep of its DAG looks after them."""
    return origin.get("started_by") != ORIGIN
