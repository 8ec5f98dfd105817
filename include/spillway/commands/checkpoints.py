"""``checkpoints``: what a run has committed and where, whether its bytes are intact, and copies of it elsewhere."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from spillway.checkpoints.layout import CommittedStep
from spillway.checkpoints.store import CheckpointStore
from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation, run_record
from spillway.commands.parsing import Parser, Subcommands, command, dry_run, group
from spillway.errors import SpillwayError
from spillway.model import Attempt, CheckpointManifest
from spillway.runs.distribution import replica_sites, replicate_run
from spillway.runs.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAtSite:
    """A committed step as one site has it."""

    site: str
    entry: CommittedStep
    manifest: CheckpointManifest
    store: CheckpointStore

    @property
    def name(self) -> str:
        return f"{self.site}: step {self.entry.step} of attempt {self.entry.attempt}"


def register(commands: Subcommands) -> None:
    """Add the commands."""
    subject = group(commands, "checkpoints", "the committed steps of a run: list, verify, replicate")
    _of_run(command(subject, "list", _list, "every committed step at every site, oldest first", json=True))
    _of_run(command(subject, "verify", _verify, "read every committed byte again; exit 1 if one is not what it was"))
    text = "copy what the newest attempt's site has to every other site that may hold it"
    parser = _of_run(command(subject, "replicate", _replicate, text))
    dry_run(parser)


def _of_run(parser: Parser) -> Parser:
    parser.add_argument("run", metavar="RUN")
    return parser


def _list(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """1 where a site or a manifest could not be read."""
    services = installation.services()
    found, problems = _steps(services, run_record(services, options.run).run)
    if options.json:
        console.data([_plain(step) for step in found])
    else:
        rows = [
            (s.site, s.entry.step, s.entry.attempt, s.manifest.size_bytes, f"{s.manifest.created_at:%Y-%m-%d %H:%M:%S}")
            for s in found
        ]
        console.table(("SITE", "STEP", "ATTEMPT", "BYTES", "COMMITTED AT (UTC)"), rows)
    for problem in problems:
        console.complain(problem)
    return 1 if problems else 0


def _verify(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """1 where any committed byte is missing or another one."""
    services = installation.services()
    run = run_record(services, options.run).run
    with console.working(f"reading every checkpoint of {run}") as say:
        found, problems = _steps(services, run)
        for step in found:
            wrong = [text for part in step.manifest.parts if (text := step.store.parts.problem(part))]
            problems += [f"{step.name}: {text}" for text in wrong]
            say(f"{step.name}: {'NOT VALID' if wrong else 'valid'}, {step.manifest.size_bytes} bytes")
    for problem in problems:
        console.complain(problem)
    if problems:
        console.complain("a resume leaves out what is not valid and takes the newest valid step before it")
    return 1 if problems else 0


def _replicate(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    run = run_record(services, options.run).run
    newest = services.ledger.attempts(run)[-1:]
    if not newest:
        console.say(f"run {run} has no attempt yet: nothing to do")
        return 0
    if options.dry_run:
        _plan_replication(services, console, newest[0])
        return 0
    with console.working(f"replicating checkpoints of {run}") as say:
        failed = replicate_run(services, newest[0], say)
    if not failed:
        sites = ", ".join(replica_sites(services, newest[0])) or "no other site, by its residency"
        console.say(f"run {run}: every committed step of {newest[0].candidate.cluster} is at {sites}")
    return 1 if failed else 0


def _plan_replication(services: Services, console: Console, attempt: Attempt) -> None:
    source = attempt.candidate.cluster
    head = CheckpointStore(services.site(source).checkpoints, attempt.run).head()
    committed = set(head.committed) if head else set()
    for site in replica_sites(services, attempt):
        there = CheckpointStore(services.site(site).checkpoints, attempt.run).head()
        missing = sorted(entry.step for entry in committed - set(there.committed if there else ()))
        steps = f"steps {', '.join(map(str, missing))}" if missing else "nothing"
        console.say(f"would copy {steps} from {source} to {site}")


def _steps(services: Services, run: str) -> tuple[list[StepAtSite], list[str]]:
    """What each site has committed, oldest first, and what could not be read."""
    found: list[StepAtSite] = []
    problems: list[str] = []
    for site in services.configuration.clusters:
        try:
            store = CheckpointStore(services.site(site).checkpoints, run)
            head = store.head()
        except SpillwayError as problem:
            problems.append(f"{site}: {problem}")
            continue
        for entry in head.committed if head else ():
            try:
                found.append(StepAtSite(site=site, entry=entry, manifest=store.manifest(entry), store=store))
            except SpillwayError as problem:
                problems.append(f"{site}: {problem}")
    return found, problems


def _plain(step: StepAtSite) -> dict[str, object]:
    return {
        "site": step.site,
        "step": step.entry.step,
        "attempt": step.entry.attempt,
        "bytes": step.manifest.size_bytes,
        "manifest_sha256": step.entry.sha256,
        "created_at": encode(step.manifest.created_at),
    }
