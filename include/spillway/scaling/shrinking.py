"""A forced shrink as a plan: which nodes leave, whose runs move or pause for that, what is lost and what it saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum

from spillway.errors.counts import counted
from spillway.model import Candidate, PoolUse, Priority, ScalableNode
from spillway.scaling.money import node_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRun:
    """A run of ours that trains in the pool: its ``attempt`` on these ``nodes``, of which a gang has several.

    ``at_risk`` is since when it has committed nothing; None where that is not known.
    """

    run: str
    attempt: int
    priority: Priority
    gpus: int
    nodes: frozenset[str]
    at_risk: timedelta | None = None


class Fate(StrEnum):
    """What becomes of a run whose node leaves."""

    MOVES = "moves"
    PAUSES = "pauses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a run can leave its place: to ``target``, or into the queue with its last checkpoint where that is None.

    ``lost`` is what it trains again, ``paused`` how long it does not train as far as that is known, and ``why`` says
    what speaks for it, or against a move. None is unknown, never zero.
    """

    target: Candidate | None
    why: str
    lost: timedelta | None = None
    paused: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A run whose nodes leave: ``nodes`` are those of its ``attempt`` that do."""

    run: str
    attempt: int
    gpus: int
    fate: Fate
    way: Way
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkPlan:
    """What bringing a pool down to ``nodes`` comes to.

    ``stays`` are the runs that are not touched. ``held`` are the nodes among ``leaving`` on which others' pods run:
    they leave when these have ended. ``saved_per_hour`` is what the nodes that leave cost an hour; None: it is not
    known.
    """

    cluster: str
    pool: str
    before: int
    nodes: int
    leaving: tuple[str, ...]
    stays: tuple[str, ...]
    departures: tuple[Departure, ...]
    held: tuple[str, ...] = ()
    saved_per_hour: Decimal | None = None


def nodes_of(use: PoolUse) -> int:
    """How many nodes the pool has or is about to have; those that leave already are not counted."""
    return max(use.wanted, len(use.nodes)) - sum(node.draining for node in use.nodes)


def choose_leaving(use: PoolUse, nodes: int, runs: Sequence[PlacedRun]) -> tuple[str, ...]:
    """The nodes that leave so that so many are left, by name: those first whose going disturbs least.

    Nodes that are not usable yet, the youngest first; then idle ones, the oldest first; then those whose runs are of
    the lowest priority and have the least to lose. A gang that has to leave one of its nodes may as well leave all.
    Others' pods are not ours to end, so nodes with some come last. What is on order is simply not ordered.
    """
    there = [node for node in use.nodes if not node.draining]
    surplus = max(0, len(there) - nodes)
    gone: list[str] = []
    disturbed: set[str] = set()
    while len(gone) < surplus:
        left = [node for node in there if node.name not in gone]
        node = min(left, key=lambda one: _reluctance(one, runs, disturbed))
        gone.append(node.name)
        disturbed |= {run.run for run in runs if node.name in run.nodes}
    return tuple(sorted(gone))


def shrink_plan(use: PoolUse, nodes: int, runs: Sequence[PlacedRun], ways: Mapping[str, Way]) -> ShrinkPlan:
    """The plan for ``choose_leaving``.

    Args:
        ways: of each run with a pod on a node that leaves.
    """
    leaving = choose_leaving(use, nodes, runs)
    affected = [run for run in runs if run.nodes & set(leaving)]
    departures = tuple(
        Departure(
            run=run.run,
            attempt=run.attempt,
            gpus=run.gpus,
            fate=_fate(ways[run.run]),
            way=ways[run.run],
            nodes=tuple(sorted(run.nodes & set(leaving))),
        )
        for run in sorted(affected, key=lambda run: run.run)
    )
    price = node_hour(use.pool)
    ours = {name: sum(name in run.nodes for run in runs) for name in leaving}
    return ShrinkPlan(
        cluster=use.cluster,
        pool=use.pool.name,
        before=nodes_of(use),
        nodes=nodes,
        leaving=leaving,
        stays=tuple(sorted(run.run for run in runs if run not in affected)),
        departures=departures,
        held=tuple(node.name for node in use.nodes if node.name in ours and node.pods > ours[node.name]),
        saved_per_hour=None if price is None else price * max(0, nodes_of(use) - nodes),
    )


def told(plan: ShrinkPlan) -> str:
    """The plan for whoever has to approve it."""
    place = f"{plan.cluster}/{plan.pool}"
    if plan.before <= plan.nodes:
        return (
            f"{place} has {counted(plan.before, 'node')}: nothing leaves, and it gets no more than {plan.nodes} for now"
        )
    lines = [
        f"{place}: {plan.before} -> {counted(plan.nodes, 'node')}; "
        f"leaving: {', '.join(plan.leaving) or 'none that is there'}"
    ]
    lines += [f"{run} stays" for run in plan.stays]
    lines += [_departure_told(departure) for departure in plan.departures]
    lines += [f"{node} has pods of others and leaves when these have ended" for node in plan.held]
    lost = [departure.way.lost for departure in plan.departures]
    known = sum((amount for amount in lost if amount is not None), timedelta())
    unknown = f" and what is not known of {counted(lost.count(None), 'run')}" if None in lost else ""
    lines.append(f"lost work: {known.total_seconds():.0f} s{unknown}")
    saved = "not known, for no price is declared" if plan.saved_per_hour is None else f"{plan.saved_per_hour:.2f}"
    lines.append(f"saved an hour: {saved}")
    return "\n".join(lines)


def _departure_told(departure: Departure) -> str:
    way = departure.way
    to = "" if way.target is None else f" to {way.target.cluster}/{way.target.pool} ({way.target.billing})"
    lost = "not known" if way.lost is None else f"{way.lost.total_seconds():.0f} s"
    paused = "" if way.paused is None else f", does not train for {way.paused.total_seconds():.0f} s at least"
    return f"{departure.run} {departure.fate}{to}: lost work {lost}{paused}; {way.why}"


def _fate(way: Way) -> Fate:
    return Fate.PAUSES if way.target is None else Fate.MOVES


def _reluctance(
    node: ScalableNode, runs: Sequence[PlacedRun], disturbed: set[str]
) -> tuple[bool, bool, int, int, float, str]:
    """How much speaks against taking the node; the smallest goes first.

    A run of which nobody knows when it committed is taken to lose more than any other.
    """
    here = [run for run in runs if node.name in run.nodes]
    anew = [run for run in here if run.run not in disturbed]
    foreign = node.pods > len(here)
    if not node.pods:
        usable = node.gpus > 0
        since = ((node.idle_since if usable else None) or node.created_at).timestamp()
        return False, usable, 0, 0, since if usable else -since, node.name
    losses = [float("inf") if run.at_risk is None else run.at_risk.total_seconds() * run.gpus for run in anew]
    highest = max((-run.priority.level for run in anew), default=-len(Priority))
    return foreign, True, 1, highest, sum(losses), node.name
