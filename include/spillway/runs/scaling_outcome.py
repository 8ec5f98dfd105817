"""What became of an order, beside what was planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spillway.errors.counts import counted
from spillway.model import Attempt, ManualOrder, Move, MoveState, OrderKind, Outcome, PoolUse, VerdictKind
from spillway.placement.explain import name
from spillway.runs.scaling_effects import follow_order, order_told, usable_nodes
from spillway.runs.scaling_orders import pool_named
from spillway.runs.services import Say, Services
from spillway.scaling.shrinking import Departure, Fate, nodes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderOutcome:
    """What an order came to, or how far it is; ``lines`` have the plan and the effect of each part of it.

    ``over``: it is carried out, or holds no longer. ``as_planned``: every part became what was planned.
    """

    over: bool
    as_planned: bool
    lines: tuple[str, ...]


def is_taken_up(use: PoolUse, order: ManualOrder) -> bool:
    """Whether the scaler has seen to it that the nodes which are to leave take no more pods."""
    leaving = set(order.remove)
    return all(node.draining for node in use.nodes if node.name in leaving)


def order_outcome(services: Services, order: str, departures: tuple[Departure, ...], say: Say) -> OrderOutcome:
    """Compare the order's plan with its effect.

    Raises:
        Missing: there is no such order.
        SpillwayError: its pool cannot be read now.
    """
    known = services.ledger.scaling_order(order)
    use = pool_named(services, f"{known.cluster}/{known.pool}")
    now = services.clock()
    if known.kind is OrderKind.ADD:
        known = follow_order(services, known, use, say)
        in_time = known.ready_at is not None and known.ready_by is not None and known.ready_at <= known.ready_by
        planned = f"planned: {counted(known.wanted, 'node')}, ready by {known.ready_by:%H:%M:%S} UTC"
        over = known.ready_at is not None or not known.holds_at(now)
        return OrderOutcome(over=over, as_planned=in_time, lines=(planned, order_told(known, use, now)))
    left = [node.name for node in use.nodes if node.name in known.remove]
    has = nodes_of(use)
    there = f", {', '.join(left)} still there" if left else ""
    lines = [f"planned: {counted(known.nodes, 'node')}; now: {has}, {usable_nodes(use)} of them ready{there}"]
    ledger = services.ledger
    fates = [fate_of(one, ledger.moves(one.run), ledger.attempts(one.run)) for one in departures]
    lines += [line for _, line in fates]
    done = not left and has <= known.nodes
    return OrderOutcome(
        over=done or not known.holds_at(now),
        as_planned=done and all(as_planned for as_planned, _ in fates),
        lines=tuple(lines),
    )


def fate_of(departure: Departure, moves: Sequence[Move], attempts: Sequence[Attempt]) -> tuple[bool, str]:
    """Whether the run became what was planned, and both in a line; what became of its other attempts is not of it.

    Args:
        moves: all of the run, oldest first, as ``attempts``.
    """
    run, planned, left = departure.run, departure.fate, departure.attempt
    moves = [move for move in moves if move.attempt == left]
    if moves and moves[-1].state is not MoveState.FAILED:
        seen, fate = f"{moves[-1].state} to {name(moves[-1].target)}", Fate.MOVES
    elif any(attempt.ending is VerdictKind.DISPLACED for attempt in attempts if attempt.number == left):
        last = attempts[-1]
        goes_on = "waits for a place" if last.outcome is not None else f"goes on at {name(last.candidate)}"
        seen, fate = ("has ended" if last.outcome is Outcome.SUCCEEDED else goes_on), Fate.PAUSES
    elif attempts[-1].outcome is Outcome.SUCCEEDED:
        return False, f"{run}: planned: {planned}; now: succeeded by itself"
    else:
        return False, f"{run}: planned: {planned}; now: neither, its last attempt is {attempts[-1].state}"
    return fate is planned, f"{run}: planned: {planned}; now: {fate}, {seen}"
