"""``costs``: what a month cost and whom, how far budgets are spent, and how to spend less."""

from __future__ import annotations

import argparse
from pathlib import Path

from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, at_least_one, command, dry_run, group


def register(parser: Parser) -> None:
    """Add the commands."""
    subject = group(parser)
    report = command(subject, "report", _report, "what a month cost, by whatever is asked", json=True)
    report.add_argument("--month", metavar="YYYY-MM", help="default: this one, by the time_zone of budgets.yaml")
    report.add_argument("--by", metavar="KEYS", help="one table by these only, such as department,billing")
    report.add_argument("--into", type=Path, metavar="DIR", help="write Markdown, CSV, Parquet and a chart there")
    report.add_argument("--without-clusters", action="store_true", help="do not look for nodes that idle just now")
    dry_run(report)
    words = command(subject, "correct", _correct, "book a run's pods at another price; what was booked stays on record")
    words.add_argument("run", metavar="RUN")
    words.add_argument("--attempt", type=at_least_one, help="only the pods of this attempt")
    words.add_argument("--price", metavar="PER_GPU_HOUR", required=True, help="what a GPU-hour really costs")
    words.add_argument("--reason", required=True, help="kept with the correction")
    dry_run(words)
    command(subject, "budgets", _budgets, "how far this month's budgets are spent and promised", json=True)


def _report(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.codec import encode
    from spillway.costs.render import COLUMNS, rows, table
    from spillway.runs.cost_report import FILES, FINEST, cost_report, month_for, write_report

    services = installation.services()
    by = tuple(key.strip() for key in options.by.split(",")) if options.by else ()
    report = cost_report(services, month_for(services, options.month), look=not options.without_clusters)
    if options.json:
        names, found = (*(by or FINEST), *COLUMNS), rows(report.lines(by or FINEST))
        written = [dict(zip(names, encode(row), strict=True)) for row in found]
        console.data({"month": report.month.name, "lines": written, "advice": encode(report.advice)})
    else:
        console.say(table(report.lines(by), by) if by else report.markdown())
    if options.into and options.dry_run:
        console.say(f"would write {', '.join(FILES)} into {options.into / report.month.name}")
    elif options.into:
        for path in write_report(report, options.into):
            console.say(f"wrote {path}")
    return 0


def _correct(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.commands.installation import run_record
    from spillway.errors import ConfigError, Missing
    from spillway.model import CostEntry
    from spillway.pricing import price_of, repriced

    services = installation.services()
    price = price_of(options.price)
    if price is None:
        raise ConfigError("--price", "", f"expected an amount of at least 0, got '{options.price}'")
    run = run_record(services, options.run).run
    label = None if options.attempt is None else f"{run}-{options.attempt}"
    booked = [entry for entry in services.ledger.costs(run) if label in {None, entry.attempt}]
    if not booked:
        raise Missing("booking", label or run, "the ledger", fix="a pod is booked when its attempt ends")

    def change(entry: CostEntry) -> CostEntry:
        return repriced(entry, price)

    for entry in booked:
        after = change(entry)
        if not options.dry_run:
            after = services.ledger.correct(entry, change, reason=options.reason, now=services.clock())
        done = "would be" if options.dry_run else "is"
        console.say(f"{entry.attempt} at {entry.cluster}: {entry.amount:.2f} {done} {after.amount:.2f}")
    return 0


def _budgets(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.budget import projected
    from spillway.codec import encode
    from spillway.costs.render import budget_table

    services = installation.services()
    now = services.clock()
    declared = services.configuration
    states = services.ledger.budgets(declared.policy, now, declared.clusters.values())
    if options.json:
        console.data([{**encode(state), "projected": f"{projected(state, now):.2f}"} for state in states])
    else:
        console.say(budget_table(states, now) if states else "no department has a budget: budgets.yaml declares none")
    return 0
