"""Everything that is wanted of one pool, each with its source and reason, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spillway.errors.counts import counted
from spillway.model import Contribution, ManualOrder, ScalingSnapshot, Source
from spillway.scaling.demand import PoolDemand
from spillway.scaling.leaving import unneeded, without
from spillway.scaling.orders import contribution
from spillway.scaling.reactive import Reaction, told
from spillway.scaling.rules import ScalingRules
from spillway.scaling.sizes import PoolSize
from spillway.scaling.timed import release_reason, window_wish

UNCHANGED = "nothing asks for a change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What each source wants of a pool; None: nothing. ``reactive`` always says something, if only its size."""

    reactive: Contribution
    ahead: Contribution | None = None
    release: Contribution | None = None
    window: Contribution | None = None
    orders: tuple[Contribution, ...] = ()

    def all(self) -> tuple[Contribution, ...]:
        """Those there are, the one that comes first in a conflict last."""
        some = (self.reactive, self.ahead, self.release, self.window)
        people = sorted(self.orders, key=lambda order: order.source is Source.FORCED_SHRINK)
        return (*(wish for wish in some if wish is not None), *people)

    @property
    def nodes(self) -> int:
        """How many nodes they come to, by who wins, but for a forced shrink."""
        base = self.release or self.reactive
        floors = [base.nodes]
        if self.release is None and self.ahead is not None:
            floors.append(self.ahead.nodes)
        if self.window is not None:
            floors.append(self.window.nodes)
        return max([*floors, *(order.nodes for order in self.orders if order.source is Source.MANUAL)])

    @property
    def bound(self) -> int | None:
        """The most that a forced shrink leaves; None without one."""
        return min((order.nodes for order in self.orders if order.source is Source.FORCED_SHRINK), default=None)


@dataclass(slots=True)
class Spare:
    """How many GPUs of all pools may still leave by the reactive rule while one plan is made; None: any number."""

    gpus: int | None

    def take(self, nodes: int, gpus_per_node: int) -> int:
        """So many of the nodes as may leave, counted as gone."""
        if self.gpus is None:
            return nodes
        taken = max(0, min(nodes, self.gpus // gpus_per_node))
        self.gpus -= taken * gpus_per_node
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A pool, what waits for it, and by what it is judged."""

    size: PoolSize
    demand: PoolDemand
    snapshot: ScalingSnapshot
    rules: ScalingRules
    reaction: Reaction
    favoured: bool

    @property
    def cooling_out(self) -> bool:
        """Whether it grew a moment ago."""
        grew = self.snapshot.last_out.get(self.size.key)
        return grew is not None and _within(self.rules.cool_down_out, grew, self.snapshot.taken_at)

    @property
    def cooling_in(self) -> bool:
        """Whether it grew or shrank a moment ago."""
        seen, key = self.snapshot, self.size.key
        changes = (moments[key] for moments in (seen.last_out, seen.last_in) if key in moments)
        return any(_within(self.rules.cool_down_in, moment, seen.taken_at) for moment in changes)


def wishes_of(case: Case, spare: Spare, ahead: Contribution | None, orders: Sequence[ManualOrder]) -> Wishes:
    """What all sources want of the pool."""
    size, rules, now = case.size, case.rules, case.snapshot.taken_at
    reactive = _reactive(case, spare)
    if ahead is not None and ahead.nodes > size.nodes and case.cooling_out:
        ahead = replace(
            ahead, nodes=size.nodes, reason=f"cools down since it grew: {counted(ahead.nodes, 'node')}, {ahead.reason}"
        )
    window, release = None, None
    if rules.window is not None and (case.favoured if rules.window.place is None else rules.window.place == size.key):
        window = window_wish(rules.window, size, case.snapshot.base_nodes, now)
        if window is not None and rules.window.place is None and case.snapshot.unknown:  # that may be the cheapest one
            window = replace(window, nodes=min(window.nodes, size.nodes))
    if reactive.nodes <= size.nodes and size.idle and (reason := release_reason(rules, now)) is not None:
        release = Contribution(source=Source.TIME_RULE, nodes=without(size, unneeded(size, case.demand)), reason=reason)
    people = tuple(contribution(order) for order in orders)
    return Wishes(reactive=reactive, ahead=ahead, release=release, window=window, orders=people)


def _reactive(case: Case, spare: Spare) -> Contribution:
    """What the reactive rule and the release of idle nodes make of the pool, once it has cooled down."""
    size, reaction, rules, now = case.size, case.reaction, case.rules, case.snapshot.taken_at
    grow = reaction.grow.get(size.key, 0)
    if grow and case.cooling_out:
        return _wish(size.nodes, f"cools down since it grew: {grow} more, {reaction.grow_reason}")
    if grow:
        return _wish(size.nodes + grow, f"{grow} more: {reaction.grow_reason}")
    if not size.idle or case.cooling_in:
        return _wish(size.nodes, UNCHANGED)
    by_rule = by_age = 0
    if reaction.release_after is not None:
        by_rule = spare.take(unneeded(size, case.demand, now - reaction.release_after), size.gpus_per_node)
    if rules.idle_release is not None:
        by_age = unneeded(size, case.demand, now - rules.idle_release)
    if by_rule > by_age:
        return _wish(without(size, by_rule), f"{by_rule} fewer: {reaction.release_reason}")
    if by_age and rules.idle_release is not None:
        return _wish(without(size, by_age), f"{by_age} fewer: idle for {told(rules.idle_release)} or longer")
    return _wish(size.nodes, UNCHANGED)


def _within(cool_down: timedelta, moment: datetime, now: datetime) -> bool:
    """Whether it was less than that long ago; of a moment to come, as a clock that was put back has, nobody knows."""
    return timedelta() <= now - moment < cool_down


def _wish(nodes: int, reason: str) -> Contribution:
    return Contribution(source=Source.REACTIVE, nodes=nodes, reason=reason)
