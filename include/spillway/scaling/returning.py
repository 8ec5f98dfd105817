"""Which runs go back to on-premises, by checkpoint, when it has room again.

A run in the cloud is paid by the hour while on-premises idles; a move costs it what ``migration`` estimates. So it goes
back where that saves money. Of several the ones go first that leave an empty node behind, which can then be given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from spillway.migration import MoveFacts, estimate, saving
from spillway.scaling.packing import FreeNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnRules:
    """A run goes back no sooner than ``after`` it began where it is, and where that saves more than ``least_saving``.

    The first keeps short runs, whose end is near, from being moved for nothing, and any run from going to and fro.
    """

    after: timedelta = timedelta(hours=1)
    least_saving: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoughtRun:
    """A run that trains on bought GPUs and could train on-premises.

    ``since`` is when it began there. ``trained`` is what it has done in all, ``expected`` what it is thought to take;
    None where nobody said. ``neighbours`` is how many GPUs others have on its nodes. ``facts`` are those of its move;
    what is left of the run is not in them.
    """

    run: str
    gpus_per_node: int
    nodes: int
    since: datetime
    trained: timedelta
    expected: timedelta | None
    neighbours: int
    facts: MoveFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A run that is to go back; ``saved`` is money, as far as the estimate goes."""

    run: str
    saved: Decimal
    reason: str


def time_ahead(trained: timedelta, expected: timedelta | None) -> timedelta:
    """How long a run still trains. Of one that nobody knows that of, or that is past it, as long as it has.

    So it is where run times have a heavy tail: what has run for long is likely to run on for long.
    """
    return trained if expected is None or expected <= trained else expected - trained


def plan_returns(runs: Sequence[BoughtRun], free: FreeNodes, rules: ReturnRules, now: datetime) -> tuple[Return, ...]:
    """The runs that go back now, in the order in which they get the room that there is.

    Args:
        free: of on-premises, beside what waits for it; it is left as it was.
    """
    left = free.copy()
    found = []
    for run in sorted((run for run in runs if now - run.since >= rules.after), key=_turn):
        if not left.total:
            break
        if not left.fits(run.gpus_per_node, run.nodes):
            continue
        ahead = time_ahead(run.trained, run.expected)
        facts = replace(run.facts, units=Decimal(run.gpus_per_node * run.nodes), seconds_per_step=1.0)
        facts = replace(facts, steps_left=int(ahead.total_seconds()))
        saved = saving(facts, estimate(facts))
        if saved is not None and saved > rules.least_saving:
            left.take(run.gpus_per_node, run.nodes)
            why = f"on-premises has room and about {ahead} are left of it: {saved.quantize(Decimal('0.01'))} saved"
            found.append(Return(run=run.run, saved=saved, reason=why))
    return tuple(found)


def _turn(run: BoughtRun) -> tuple[bool, int, timedelta, str]:
    return run.neighbours > 0, run.neighbours, -time_ahead(run.trained, run.expected), run.run
