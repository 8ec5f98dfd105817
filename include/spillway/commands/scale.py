"""``scale``: what the scaler wants of each node pool and why, people's orders, and every change with its reasons."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from spillway.codec import encode
from spillway.commands.console import Console
from spillway.commands.installation import Installation
from spillway.commands.parsing import Parser, at_least_one, command, dry_run, group, whole
from spillway.errors.counts import counted
from spillway.model import MOST_ORDER_HOURS, ManualOrder, OrderKind, ScalingChange
from spillway.runs.services import Services
from spillway.scaling.rules import QueueRule, ScalingRules

ORDERS = ("ORDER", "WHAT", "POOL", "BY", "ORDERED (UTC)", "HOLDS UNTIL", "READY BY", "READY AT")
CHANGES = ("AT (UTC)", "POOL", "NODES", "BY", "OUTCOME", "WHY")


def register(parser: Parser) -> None:
    """Add the commands."""
    subject = group(parser)
    command(subject, "plan", _plan, "show what each pool would be brought to, and every reason for it", json=True)
    command(subject, "apply", _apply, "bring every pool to what is wanted now, as the DAG does each minute", json=True)
    add = command(subject, "add", _add, "order nodes on top of what is wanted, ready within ten minutes", json=True)
    add.add_argument("pool", metavar="CLUSTER/POOL")
    add.add_argument("nodes", type=at_least_one, metavar="NODES", help="so many more")
    shrink = command(subject, "shrink", _shrink, "show what a forced shrink comes to; the form orders one", json=True)
    shrink.add_argument("pool", metavar="CLUSTER/POOL")
    shrink.add_argument("nodes", type=whole(0), metavar="NODES", help="down to so many")
    shrink.add_argument(
        "--approve",
        action="store_true",
        help="order it: its nodes take no more pods and leave once empty",
    )
    for words in (add, shrink):
        words.add_argument(
            "--hours",
            type=whole(1, MOST_ORDER_HOURS),
            default=4,
            metavar="HOURS",
            help="how long it holds (default: 4)",
        )
    dry_run(add)
    text = "let an order hold no longer; nodes that it brought leave once they idle"
    command(subject, "withdraw", _withdraw, text, json=True).add_argument("order", metavar="ORDER")
    command(subject, "orders", _orders, "what people ordered, newest last", json=True)
    changes = command(subject, "changes", _changes, "what was changed, by whom and why, newest last", json=True)
    inputs = command(subject, "inputs", _inputs, "what a change was planned from, as JSON")
    inputs.add_argument("change", type=at_least_one, metavar="CHANGE", help="its number in `scale changes --json`")
    changes.add_argument("--limit", type=at_least_one, default=20, help="so many of the newest (default: 20)")


def _plan(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.runs.scaling import look

    with console.working("asking every provider of nodes"):
        found = look(installation.services())
    if options.json:
        told = {"plan": encode(found.plan), "foreseen": found.foreseen or None, "problems": list(found.problems)}
        console.data(told)
    else:
        for target in filter(found.is_known, found.plan):
            console.say(found.told(target))
        for problem in found.problems:
            console.say(f"not known, so it keeps its size: {problem}")
        if found.foreseen:
            console.say(found.foreseen)
        if found.seen.pools:
            console.say(rules_told(found.look.rules, found.seen.taken_at))
        if not found.seen.pools and not found.problems:
            console.say("no pool is scaled: none declares scaled_by in clusters.yaml")
    return 1 if found.problems else 0


def rules_told(rules: ScalingRules, now: datetime) -> str:
    """Which rules are in force, and whether those that look at the clock ask for anything now."""
    from spillway.scaling.timed import release_reason, window_at

    parts = [f"rules: {rules.preset}"]
    if rules.waiting is None and rules.returning is None and isinstance(rules.reactive, QueueRule):
        parts.append("no job waits by choice or goes back")
    if rules.window is not None:
        window = window_at(rules.window, now)
        parts.append("no window now" if window is None else f"in the window {window.name}")
    if rules.release_hours is not None:
        told = release_reason(replace(rules, window=None), now)
        parts.append(told or "not in the hours of release")
    return "; ".join(parts)


def _apply(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.runs.scaling import scale

    with console.working("scaling") as say:
        scaled = scale(installation.services(), (lambda line: None) if options.json else say)
    if options.json:
        console.data({"changes": encode(scaled.changes), "problems": list(scaled.problems)})
    elif not scaled.changes and not scaled.problems:
        console.say("every pool is as wanted")
    return 1 if scaled.problems else 0


def _add(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.runs.scaling_orders import add_text, order_more, pool_named

    services = installation.services()
    if options.dry_run:
        text = add_text(services, pool_named(services, options.pool), options.nodes)
        console.data({"text": text}) if options.json else console.say(text)
        return 0
    name, by, lasting = _name(), _who(services), timedelta(hours=options.hours)
    _tell(console, options, order_more(services, options.pool, options.nodes, order=name, by=by, lasting=lasting))
    return 0


def _shrink(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    from spillway.runs.scaling_orders import order_fewer, plan_shrink
    from spillway.scaling.shrinking import told

    services = installation.services()
    with console.working("asking every cluster"):
        plan = plan_shrink(services, options.pool, options.nodes)
    if not options.json:
        console.say(told(plan))
    if not options.approve:
        if options.json:
            console.data(encode(plan))
        return 0
    order = order_fewer(services, plan, order=_name(), by=_who(services), lasting=timedelta(hours=options.hours))
    _tell(console, options, order)
    return 0


def _withdraw(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    services = installation.services()
    _tell(console, options, services.ledger.withdraw_order(options.order, services.clock()))
    return 0


def _orders(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    found = installation.services().ledger.scaling_orders()
    if options.json:
        console.data(encode(found))
    else:
        console.table(ORDERS, [_order_row(order) for order in found])
    return 0


def _changes(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    found = installation.services().ledger.scaling_changes(newest=options.limit)
    if options.json:
        console.data(encode(found))
    else:
        console.table(CHANGES, [_change_row(change) for change in found])
    return 0


def _inputs(installation: Installation, console: Console, options: argparse.Namespace) -> int:
    """1 where it is not kept any more, or the plan does not follow from it."""
    from spillway.runs.shadow_scaling import follows

    look = installation.services().ledger.planned_from(options.change)
    if look is None:
        console.say(f"what change {options.change} was planned from is not kept any more")
        return 1
    again = follows(look)
    console.data({**encode(look), "follows": again})
    return 0 if again else 1


def _order_row(order: ManualOrder) -> tuple[object, ...]:
    what = f"+{order.nodes}" if order.kind is OrderKind.ADD else f"down to {order.nodes}"
    until = "withdrawn" if order.withdrawn_at is not None else _moment(order.until)
    place = f"{order.cluster}/{order.pool}"
    ready = (_moment(order.ready_by), _moment(order.ready_at))
    return (order.order, what, place, order.ordered_by, _moment(order.ordered_at), until, *ready)


def _change_row(change: ScalingChange) -> tuple[object, ...]:
    nodes = f"{change.before} -> {change.target.nodes}"
    return (
        _moment(change.decided_at),
        f"{change.cluster}/{change.pool}",
        nodes,
        change.actor,
        change_outcome(change),
        change.target.why,
    )


def change_outcome(change: ScalingChange) -> str:
    """What became of the change."""
    if change.problem is not None:
        return f"not done in {counted(change.tries, 'try', 'tries')}: {change.problem}"
    if change.asked_at is None:
        return "broken off before it was done"
    if change.reached_at is None:
        return "done"
    return f"done, reached after {(change.reached_at - change.asked_at).total_seconds():.0f} s"


def _tell(console: Console, options: argparse.Namespace, order: ManualOrder) -> None:
    if options.json:
        console.data(encode(order))
        return
    place, until = f"{order.cluster}/{order.pool}", _moment(order.until)
    nodes = counted(order.nodes, "node")
    what = f"{nodes} more" if order.kind is OrderKind.ADD else f"down to {nodes}"
    state = "withdrawn" if order.withdrawn_at is not None else f"until {until} UTC"
    console.say(f"order {order.order}: {what} at {place}, {state}; the scaler carries it out with its next look")


def _moment(at: Any) -> str | None:
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _name() -> str:
    from uuid import uuid4

    return f"order-{uuid4().hex[:8]}"


def _who(services: Services) -> str:
    return services.actor or "somebody"
