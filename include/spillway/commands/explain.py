"""``explain``: where a job would go and why, and whether a decision of the past follows from its stored inputs."""

from __future__ import annotations

import argparse

from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation, run_record
from spillway.commands.parsing import Subcommands, at_least_one, command
from spillway.errors import Missing
from spillway.ledger import DecisionRecord
from spillway.model import JobSpec
from spillway.placement.explain import rows, table
from spillway.placement.policy import place
from spillway.runs.admission import decide, snapshot
from spillway.runs.planning import movement, verdict
from spillway.runs.services import Services


def register(commands: Subcommands) -> None:
    """Add the command."""
    text = "show where a job would run now and why, or decide a run's placements again from their stored inputs"
    parser = command(commands, "explain", _explain, text, json=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("job", nargs="?", metavar="JOB", help="a job file's name, or a path with a slash")
    what.add_argument("--run", help="explain the decisions that were taken for this run")
    parser.add_argument("--attempt", type=at_least_one, help="with --run: only the decision that placed this attempt")


def _explain(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    if options.attempt is not None and options.run is None:
        options.usage_error("--attempt needs --run")
    services = installation.services()
    if options.run is not None:
        return _explain_run(services, console, options)
    return _explain_now(services, console, installation.job(options.job, services.configuration.datasets), options)


def _explain_now(services: Services, console: Console, job: JobSpec, options: argparse.Namespace) -> int:
    """0 where the job would run or wait, 1 where nothing can ever hold it."""
    with console.working("asking every cluster"):
        decision = decide(services, job, snapshot(services))
    if options.json:
        console.data({"decision": encode(decision), "table": rows(decision)})
    else:
        console.say(verdict(decision))
    if decision.chosen is not None and not options.json:
        console.say(movement(services, job, decision.chosen.cluster))
    return 0 if decision.possible else 1


def _explain_run(services: Services, console: Console, options: argparse.Namespace) -> int:
    """0 where every decision that is shown follows from its stored inputs, else 1."""
    record = run_record(services, options.run)
    shown = _selected(services.ledger.decisions(record.run), record.run, options.attempt)
    equal = [place(entry.job, entry.snapshot, entry.policy) == entry.decision for entry in shown]
    if options.json:
        console.data(
            [
                {"attempt": entry.attempt, "decision": encode(entry.decision), "rebuilt_equals_stored": same}
                for entry, same in zip(shown, equal, strict=True)
            ]
        )
    else:
        for entry, same in zip(shown, equal, strict=True):
            told = "equals the stored decision" if same else "DIFFERS from the stored decision"
            console.say(f"{_title(entry)}\n{table(entry.decision)}\ndecided again from the stored inputs: {told}\n")
    return 0 if all(equal) else 1


def _selected(records: tuple[DecisionRecord, ...], run: str, attempt: int | None) -> tuple[DecisionRecord, ...]:
    """The decisions that placed an attempt, and the newest of those that found no place."""
    placed = tuple(record for record in records if record.attempt is not None)
    if attempt is None:
        return (*placed, *(record for record in records[-1:] if record.attempt is None))
    wanted = tuple(record for record in placed if record.attempt == attempt)
    if not wanted:
        numbers = ", ".join(str(record.attempt) for record in placed) or "none"
        raise Missing("attempt", str(attempt), f"run '{run}'", fix=f"its attempts: {numbers}")
    return wanted


def _title(record: DecisionRecord) -> str:
    return "waiting" if record.attempt is None else f"attempt {record.attempt}"
