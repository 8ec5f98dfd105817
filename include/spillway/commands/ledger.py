"""``ledger``: its schema."""

from __future__ import annotations

import argparse

from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, command, dry_run, group
from spillway.errors import ConfigError


def register(parser: Parser) -> None:
    """Add the command."""
    subject = group(parser)
    parser = command(subject, "upgrade", _upgrade, "create the ledger or bring it to this release's schema")
    dry_run(parser)


def _upgrade(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.ledger import open_ledger, upgrade

    url = installation.ledger_url()
    if not options.dry_run:
        upgrade(url)
        console.say("the ledger has this release's schema")
        return 0
    try:
        open_ledger(url)
    except ConfigError as problem:
        console.say(f"would upgrade: {problem}")
    else:
        console.say("the ledger has this release's schema: nothing to do")
    return 0
