"""``transfers``: what was moved between sites or kept from moving, the evidence of residency."""

from __future__ import annotations

import argparse

from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, at_least_one, carried_out
from spillway.ledger import Transfer, TransferKind, TransferOutcome
from spillway.model import Tier

HEADER = ("AT (UTC)", "WHAT", "TIER", "ROUTE", "OUTCOME", "BYTES", "OBJECTS", "TLS", "WHO", "WHY")


def register(parser: Parser) -> None:
    """Add the words of the command."""
    carried_out(parser, _transfers, json=True)
    parser.add_argument("--dataset", metavar="DATASET", help="of this dataset only")
    parser.add_argument("--site", metavar="SITE", help="from or to this cluster only")
    parser.add_argument("--run", metavar="RUN", help="asked for by this run only")
    parser.add_argument("--tier", type=Tier, choices=tuple(Tier), help="of this tier only")
    outcomes = tuple(TransferOutcome)
    parser.add_argument("--outcome", type=TransferOutcome, choices=outcomes, help="that ended so only")
    parser.add_argument("--limit", type=at_least_one, default=50, help="so many of the newest (default: 50)")


def _transfers(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    found = installation.services().ledger.transfers(
        options.run,
        site=options.site,
        newest=options.limit,
        kind=None if options.dataset is None else TransferKind.DATASET,
        name=options.dataset,
        tier=options.tier,
        outcome=options.outcome,
    )
    if options.json:
        console.data(encode(found))
    else:
        console.table(HEADER, [_row(line) for line in found])
    return 0


def _row(line: Transfer) -> tuple[object, ...]:
    """``OBJECTS`` counts what was copied, or what was withheld."""
    return (
        f"{line.at:%Y-%m-%d %H:%M:%S}",
        f"{line.kind} {line.name}",
        line.tier,
        f"{line.source} -> {line.destination}",
        line.outcome,
        line.size_bytes,
        line.objects_copied if line.objects_withheld is None else line.objects_withheld,
        None if line.tls is None else "yes" if line.tls else "no",
        line.actor,
        line.reason,
    )
