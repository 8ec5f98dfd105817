"""``explain``: where a job would go and why, and whether a decision of the past follows from its stored inputs."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation, run_record
from spillway.commands.parsing import Parser, at_least_one, carried_out
from spillway.errors import Missing, UnknownName
from spillway.model import JobSpec, PlacementDecision, PlacementPolicy, Snapshot
from spillway.placement.explain import clusters, inputs, rows, why_not
from spillway.runs.admission import decide, snapshot
from spillway.runs.explaining import Explained, explained, told
from spillway.runs.planning import movement, verdict
from spillway.runs.services import Services


def register(parser: Parser) -> None:
    """Add the words of the command."""
    carried_out(parser, _explain, json=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("job", nargs="?", metavar="JOB", help="a job file's name, or a path with a slash")
    what.add_argument("--run", help="explain the decisions that were taken for this run")
    parser.add_argument("--attempt", type=at_least_one, help="with --run: only the decision that placed this attempt")
    parser.add_argument("--dag", metavar="DAG", help="with JOB: as if this DAG asked for it, not a person")
    parser.add_argument("--why-not", metavar="CLUSTER", help="say only why the job does not run there")


def _explain(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    if options.attempt is not None and options.run is None:
        options.usage_error("--attempt needs --run")
    if options.dag is not None and options.run is not None:
        options.usage_error("--dag needs JOB: a run knows who asked for it")
    services = installation.services()
    if options.run is not None:
        return _explain_run(services, console, options)
    return _explain_now(services, console, installation.job(options.job, services.configuration.datasets), options)


def _explain_now(services: Services, console: Console, job: JobSpec, options: argparse.Namespace) -> int:
    """0 where the job would run or wait, 1 where nothing can ever hold it or only a correction lets it run."""
    _require_cluster(options.why_not, services.configuration.clusters)
    with console.working("asking every cluster"):
        seen = snapshot(services, job, dag=options.dag)
        decision = decide(services, job, seen)
    if options.json:
        plain = _data(decision, job, seen, services.configuration.policy, options.why_not)
        console.data({**plain, "table": rows(decision)})
    elif options.why_not is not None:
        console.say("\n".join(why_not(decision, options.why_not)))
    else:
        console.say(verdict(services, job, seen, decision))
        if decision.chosen is not None:
            console.say(movement(services, job, decision.chosen.cluster))
    return 0 if decision.possible and not decision.needs_correction else 1


def _explain_run(services: Services, console: Console, options: argparse.Namespace) -> int:
    """1 where a decision that is shown does not follow from its stored inputs by the rules that took it, else 0."""
    record = run_record(services, options.run)
    shown = _selected(explained(services.ledger, record.run), record.run, options.attempt)
    for entry in shown:
        _require_cluster(options.why_not, clusters(entry.record.snapshot))
    if options.json:
        console.data([_plain(entry, options.why_not) for entry in shown])
    else:
        for entry in shown:
            console.say(_told(entry, options.why_not))
    return 0 if all(entry.otherwise is None for entry in shown) else 1


def _selected(found: tuple[Explained, ...], run: str, attempt: int | None) -> tuple[Explained, ...]:
    """All of them, or the one that placed the attempt."""
    if attempt is None:
        return found
    placed = {entry.record.attempt: entry for entry in found if entry.record.attempt is not None}
    if attempt not in placed:
        numbers = ", ".join(map(str, placed)) or "none"
        raise Missing("attempt", str(attempt), f"run '{run}'", fix=f"its attempts: {numbers}")
    return (placed[attempt],)


def _require_cluster(cluster: str | None, known: Collection[str]) -> None:
    if cluster is not None and cluster not in known:
        raise UnknownName("cluster", cluster, known)


def _told(entry: Explained, cluster: str | None) -> str:
    record = entry.record
    if cluster is not None:
        return "\n".join([entry.title, *why_not(record.decision, cluster), entry.follows, ""])
    return "\n".join([entry.title, told(record), entry.follows, ""])


def _plain(entry: Explained, cluster: str | None) -> dict[str, object]:
    record = entry.record
    plain = _data(record.decision, record.job, record.snapshot, record.policy, cluster)
    return {"attempt": record.attempt, "rebuilt_equals_stored": entry.rebuilt, **plain}


def _data(
    decision: PlacementDecision, job: JobSpec, seen: Snapshot, policy: PlacementPolicy, cluster: str | None
) -> dict[str, object]:
    """What a program reads of a decision."""
    asked = {} if cluster is None else {"why_not": why_not(decision, cluster)}
    return {"decision": encode(decision), "inputs": inputs(job, seen, policy), **asked}
