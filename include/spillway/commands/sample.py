"""``sample``: what clusters and queue are like, every half minute, into the ledger."""

from __future__ import annotations

import argparse

from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, carried_out


def register(parser: Parser) -> None:
    """Add the words of the command."""
    carried_out(parser, _sample)
    parser.add_argument("--once", action="store_true", help="take the sample of this moment, and end")


def _sample(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """Goes on until it is ended; with ``--once`` 1 where there is no sample of this moment then."""
    import logging
    import threading

    from spillway.model import SAMPLE_STEP
    from spillway.runs.sampling import Sampler, declared_files
    from spillway.sampling import step_start

    logging.basicConfig(format="%(asctime)s %(message)s")
    clock = installation.services().clock  # what is wrong from the start is told now
    sampler = Sampler(installation.services, lambda: declared_files(installation.configuration_directory))
    if options.once:
        return 0 if sampler.take(step_start(clock(), SAMPLE_STEP)) else 1
    console.say(f"sampling every {SAMPLE_STEP.total_seconds():.0f} s")
    sampler.run(threading.Event(), clock=clock)
    return 0
