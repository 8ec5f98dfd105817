"""``checkpoints``: what a run has committed and where, whether its bytes are intact, copies, restores and deletes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spillway.checkpoints.history import pruned_steps
from spillway.checkpoints.layout import CommittedStep, Head
from spillway.checkpoints.progress import lasting
from spillway.checkpoints.prune import PruneReport
from spillway.checkpoints.store import CheckpointStore
from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation, cluster, run_record
from spillway.commands.parsing import Parser, at_least_one, command, dry_run, group
from spillway.errors import SpillwayError
from spillway.errors.counts import counted
from spillway.model import Attempt, CheckpointManifest, Retention
from spillway.runs.replicating import replica_sites, replicate_run
from spillway.runs.restoring import restore_run
from spillway.runs.retention import prune_run, summary
from spillway.runs.services import Services
from spillway.sync.progress import Paced


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


def register(parser: Parser) -> None:
    """Add the commands."""
    subject = group(parser)
    text = "every committed step at every site, oldest first"
    _of_run(command(subject, "ls", _list, text, json=True, aliases=("list",)))
    text = "read every committed byte again; exit 1 if one is not what it was"
    _of_run(command(subject, "verify", _verify, text, json=True))
    text = "copy what the newest attempt's site has to every other site that may hold it"
    dry_run(_of_run(command(subject, "replicate", _replicate, text)))
    text = "write the newest valid step as files; each byte is verified, files that are there already are kept"
    parser = _of_run(command(subject, "restore", _restore, text, json=True))
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="empty, missing, or of an earlier restore")
    parser.add_argument("--step", type=at_least_one, metavar="N", help="this step and no other")
    parser.add_argument("--site", metavar="SITE", help="from this site; default: the one with the newest step")
    dry_run(parser)
    text = "take out of use what retention does not keep, and delete what belongs to no step, at every site"
    parser = _of_run(command(subject, "prune", _prune, text, json=True))
    parser.add_argument(
        "--last", type=at_least_one, metavar="N", help="keep the newest N steps instead of as many as policy.yaml says"
    )
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
    verdicts = []
    with console.working(f"reading every checkpoint of {run}") as say:
        found, problems = _steps(services, run)
        for step in found:
            wrong = step.store.parts.problems(step.manifest.parts)
            problems += [f"{step.name}: {text}" for text in wrong]
            verdicts.append({**_plain(step), "problems": wrong})
            if not options.json:
                say(f"{step.name}: {'NOT VALID' if wrong else 'valid'}, {counted(step.manifest.size_bytes, 'byte')}")
    if options.json:
        console.data(verdicts)
    for problem in problems:
        console.complain(problem)
    if problems:
        console.complain("a resume leaves out what is not valid and takes the newest valid step before it")
    return 1 if problems else 0


def _restore(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    run = run_record(services, options.run).run
    site = None if options.site is None else cluster(services, options.site).name
    with console.working(f"restoring {run} into {options.folder}"):
        done = restore_run(services, run, options.folder, step=options.step, site=site, dry_run=options.dry_run)
    for reason in done.rejected:
        console.complain(f"not used: {reason}")
    if options.json:
        console.data(encode(done))
        return 0
    wrote = "would write" if options.dry_run else "wrote"
    console.say(
        f"run {run}: {wrote} step {done.step} of attempt {done.attempt} from {done.site} to {options.folder}: "
        f"{counted(done.files_written, 'file')}, {counted(done.bytes_written, 'byte')}; {done.files_kept} there already"
    )
    return 0


def _prune(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """1 where a site could not be pruned."""
    services = installation.services()
    run, rules = run_record(services, options.run).run, services.configuration.retention
    if options.last is not None:
        rules = replace(rules or Retention(best=0), last=options.last)
    if rules is None:
        console.complain("policy.yaml declares no checkpoints.retention: every committed step is kept")
    with console.working(f"pruning {run}"):
        found = prune_run(services, run, rules, dry_run=options.dry_run)
    pruned = {site: report for site, report in found.items() if isinstance(report, PruneReport)}
    if options.json:
        console.data({site: encode(report) for site, report in pruned.items()})
    for site, report in pruned.items():
        if not options.json:
            stay = ", ".join(str(entry.step) for entry in report.kept) or "none"
            told = summary(report, dry_run=options.dry_run) or "nothing to delete"
            young = f"; those younger than {lasting(rules.minimum_age)} do in any case" if rules else ""
            console.say(f"{site}: {told}; steps that stay: {stay}{young}")
    for site, problem in found.items():
        if isinstance(problem, SpillwayError):
            console.complain(f"{site}: nothing was deleted: {problem}")
    return 0 if len(pruned) == len(found) else 1


def _replicate(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    run = run_record(services, options.run).run
    newest = services.ledger.attempts(run)[-1:]
    if not newest:
        console.say(f"run {run} has no attempt yet: nothing to do")
        return 0
    if options.dry_run:
        return 1 if replicate_run(services, newest[0], console.say, dry_run=True) else 0
    with console.following(f"replicating checkpoints of {run}") as (say, show):
        paced = Paced(show, every_seconds=console.pace_seconds)
        failed = replicate_run(services, newest[0], say, on_progress=paced)
    if not failed:
        sites = ", ".join(replica_sites(services, newest[0])) or "no other site, by its residency"
        source = services.store_site(newest[0].job, newest[0].candidate.cluster)
        console.say(f"run {run}: every committed step of {source} is at {sites}")
    return 1 if failed else 0


def _steps(services: Services, run: str) -> tuple[list[StepAtSite], list[str]]:
    """What each site has committed, oldest first, and what could not be read or is not there any more."""
    found: list[StepAtSite] = []
    problems: list[str] = []
    attempts = services.ledger.attempts(run)
    for site in services.configuration.clusters:
        try:
            store = CheckpointStore(services.site(site).checkpoints, run)
            head = store.head()
        except SpillwayError as problem:
            problems.append(f"{site}: {problem}")
            continue
        here = [attempt for attempt in attempts if services.store_site(attempt.job, attempt.candidate.cluster) == site]
        problems += [f"{site}: {text}" for text in _forgotten(store, head, here)]
        for entry in head.committed if head else ():
            try:
                found.append(StepAtSite(site=site, entry=entry, manifest=store.manifest(entry), store=store))
            except SpillwayError as problem:
                problems.append(f"{site}: {problem}")
    return found, problems


def _forgotten(store: CheckpointStore, head: Head | None, attempts: Sequence[Attempt]) -> list[str]:
    """What the ledger knows to have been committed at a site by these attempts and is neither there nor pruned."""
    there = {entry.age_order for entry in head.committed} if head else set()
    missing = [
        (attempt.number, attempt.committed_step)
        for attempt in attempts
        if attempt.committed_step is not None and (attempt.number, attempt.committed_step) not in there
    ]
    pruned = pruned_steps(store) if missing and head else frozenset()
    seen = "HEAD does not list it" if head else "HEAD is missing"
    return [
        f"the ledger knows step {step} of attempt {number} as committed, {seen}"
        for number, step in missing
        if (number, step) not in pruned
    ]


def _plain(step: StepAtSite) -> dict[str, object]:
    return {
        "site": step.site,
        "step": step.entry.step,
        "attempt": step.entry.attempt,
        "bytes": step.manifest.size_bytes,
        "manifest_sha256": step.entry.sha256,
        "created_at": encode(step.manifest.created_at),
    }
