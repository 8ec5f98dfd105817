"""``demand``: GPUs, what they do, who waits for them, and how old each figure is."""

from __future__ import annotations

import argparse

from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, carried_out
from spillway.model import Priority


def register(parser: Parser) -> None:
    """Add the words of the command."""
    carried_out(parser, _demand, json=True)
    parser.add_argument("--department", help="what its jobs use and wait for, not everybody's")
    parser.add_argument("--priority", type=Priority, choices=tuple(Priority), help="of jobs of this priority only")
    parser.add_argument("--business-scene", metavar="SCENE", help="of jobs of this scene only")


def _demand(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """0 where all of it is current, 1 where some is not."""
    from spillway.codec import encode
    from spillway.demand.figures import Whose
    from spillway.demand.render import aligned, cells, queue_cells, remarks
    from spillway.errors import UnknownName
    from spillway.runs.demand_report import demand_now
    from spillway.runs.scaling_forecasts import foresee

    services = installation.services()
    declared, department = services.configuration, options.department
    if department is not None and department not in declared.policy.quotas:
        raise UnknownName("department", department, declared.policy.quotas)
    whose = Whose(department=department, priority=options.priority, business_scene=options.business_scene)
    now = services.clock()
    figures = demand_now(services.ledger, declared.clusters, now, whose)
    foreseen = foresee(services.ledger, declared, now).told
    if options.json:
        console.data(encode(figures) | {"foreseen": foreseen or None})
    else:
        waiting = queue_cells(figures)
        parts = [aligned(cells(figures)), aligned(waiting) if waiting else "", "\n".join(remarks(figures)), foreseen]
        console.say("\n\n".join(filter(None, parts)))
    return 1 if figures.stale else 0
