"""``shadow``: what another policy would have decided in place of the one in force; nothing is changed."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, carried_out, lasting

DAY = timedelta(days=1)


def register(parser: Parser) -> None:
    """Add the words of the command."""
    carried_out(parser, _shadow, json=True)
    parser.add_argument("candidate", metavar="POLICY", type=Path, help="a file like policy.yaml, the candidate")
    parser.add_argument(
        "--since", type=lasting, default=DAY, metavar="LENGTH", help="of the last 12h, 7d (default: 1d)"
    )


def _shadow(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.config import load_candidate
    from spillway.ledger import open_ledger
    from spillway.runs.shadows import shadows
    from spillway.scaling.presets import PRESETS

    word = str(options.candidate)
    if word in PRESETS and not options.candidate.exists():
        options.usage_error(f"expected a file like policy.yaml, one with `scaling: {{preset: {word}}}`, got '{word}'")
    candidate = load_candidate(options.candidate, installation.configuration().clusters)
    ledger = open_ledger(installation.ledger_url())
    until = datetime.now(UTC)
    since = until - options.since
    with console.working("deciding again"):
        found = shadows(ledger, *candidate, since=since, until=until)
    if options.json:
        console.data(found.data())
    else:
        console.say(found.told())
    return 0
