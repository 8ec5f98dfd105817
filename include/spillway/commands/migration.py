"""``runs migrate``: move a run to another place while it trains."""

from __future__ import annotations

import argparse
from datetime import timedelta

from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation, run_record
from spillway.commands.parsing import Subcommands, command, dry_run, seconds
from spillway.runs.migrating import migrate
from spillway.runs.move_plan import BEST, NOT_SPOT, move_plan, take_advice


def register(runs: Subcommands) -> None:
    """Add the command to those of ``runs``."""
    text = "move a run that trains to another place, and wait for its first step there"
    parser = command(runs, "migrate", _migrate, text, json=True)
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "target",
        metavar="TARGET",
        nargs="?",
        default=BEST,
        help=f"CLUSTER, CLUSTER/POOL or CLUSTER/POOL/BILLING, {NOT_SPOT} for the best other place that is not spot "
        f"(default: {BEST}, the best other place)",
    )
    parser.add_argument("--reason", default="ordered from the command line", help="kept in the ledger")
    parser.add_argument(
        "--wait-for-checkpoint",
        type=seconds,
        metavar="SECONDS",
        default=0.0,
        help="let it commit once more before it is asked to end, at most so long (default: 0): for a last checkpoint "
        "that does not fit the grace",
    )
    parser.add_argument(
        "--as-advised",
        action="store_true",
        help="let it stay where the advice is to stay, and commit once more where that is to wait",
    )
    parser.add_argument("--poll-seconds", type=seconds, default=2.0, help="between two looks at it (default: 2)")
    dry_run(parser)


def _migrate(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    run = run_record(services, options.run).run
    if options.dry_run:
        with console.working("asking every cluster"):
            plan = move_plan(services, run, options.target)
        if options.json:
            console.data(plan.data)
        else:
            console.say(plan.text)
        return 0
    origin = {"started_by": "command line", "at": services.clock().isoformat()}
    wait = timedelta(seconds=options.wait_for_checkpoint)
    if options.as_advised:
        wait = max(wait, take_advice(move_plan(services, run, options.target)))
    with console.working(f"moving run {run}") as say:
        quiet = (lambda line: None) if options.json else say
        move = migrate(
            services,
            run,
            options.target,
            options.reason,
            quiet,
            origin=origin,
            poll_seconds=options.poll_seconds,
            wait=wait,
        )
    if options.json:
        console.data(encode(move))
    return 0
