"""Bring node pools to what the scaler wants: observe, decide, ask the providers, and keep a line of every change.

One at a time: whoever scales has its turn, and another one is told so and changes nothing. What is wanted goes on
record before a provider is asked, and asking is repeatable, so whoever dies in the middle is followed by the next one.
A pool that cannot be read, or whose provider refuses, keeps what it has and stops no other.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from spillway.clouds.base import NodePoolScaler
from spillway.errors import SpillwayError
from spillway.errors.counts import counted
from spillway.ledger import ScalingLook
from spillway.model import OrderKind, PoolTarget, PoolUse, ScalingChange, ScalingSnapshot
from spillway.runs.scaling_effects import note_effects, tell_failed, tell_given_up, tell_refused
from spillway.runs.scaling_facts import MEMORY, Key, closed_nodes, scalers, scaling_snapshot
from spillway.runs.scaling_forecasts import foresee
from spillway.runs.services import Say, Services
from spillway.scaling.planner import plan_scaling

TURN = timedelta(minutes=2)
"""How long nobody else scales after each step; longer than any provider takes to answer."""
NOTED_EVERY = timedelta(minutes=5)
"""So often a look is stored that changes nothing: a candidate may have scaled there. Those that do are stored all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """What one look came to: ``plan`` has a target for every pool that is known, ``changes`` those that differ.

    ``look`` is that plan before approved shrinks close nodes to pods, with what it was made from.
    ``closed`` are the nodes of each pool that its last change has closed to pods, so that they become empty.
    ``foreseen`` is the demand to come, or why nothing is known of it; empty where the rules do not look ahead.
    ``problems`` are what could not be read or was not carried out; the next look tries it again.
    """

    look: ScalingLook
    plan: tuple[PoolTarget, ...]
    closed: Mapping[Key, frozenset[str]] = field(default_factory=dict)
    changes: tuple[ScalingChange, ...] = ()
    foreseen: str = ""
    problems: tuple[str, ...] = ()

    @property
    def seen(self) -> ScalingSnapshot:
        """What was known."""
        return self.look.snapshot

    def is_known(self, target: PoolTarget) -> bool:
        """Whether the pool could be read."""
        return (target.cluster, target.pool) not in self.seen.unknown

    def use(self, target: PoolTarget) -> PoolUse:
        """The pool as it was seen."""
        place = (target.cluster, target.pool)
        return next(use for use in self.seen.pools if (use.cluster, use.pool.name) == place)

    def differs(self, target: PoolTarget) -> bool:
        """Whether the pool is known and is to become other than it is."""
        if not self.is_known(target):
            return False
        use, drains = self.use(target), set(target.drains)
        draining = {node.name for node in use.nodes if node.draining}
        to_open = draining & self.closed.get((target.cluster, target.pool), frozenset()) - drains
        return target.nodes != use.wanted or bool(target.remove or drains - draining or to_open)

    def told(self, target: PoolTarget) -> str:
        """The target of one pool and every reason for it, for a person."""
        use, place = self.use(target), f"{target.cluster}/{target.pool}"
        nodes = counted(target.nodes, "node")
        head = f"{use.wanted} -> {nodes}" if self.differs(target) else f"{nodes}, as wanted"
        lines = [f"{place}: {head}"]
        lines += [f"  {wish.source} wants {wish.nodes}: {wish.reason}" for wish in target.contributions]
        lines += [f"  held back: {clamp}" for clamp in target.clamps]
        lines += [f"  {name} is replaced, it failed" for name in target.replaces]
        lines += [f"  {name} leaves" for name in target.remove if name not in target.replaces]
        lines += [f"  {name} takes no more pods and leaves when it is empty" for name in target.drains]
        return "\n".join(lines)


def look(services: Services) -> Scaled:
    """What would be done now; nothing is changed."""
    return _planned(services, scaling_snapshot(services, scalers(services)))


def scale(services: Services, say: Say) -> Scaled:
    """Bring every pool that is known to what the scaler wants of it.

    Raises:
        ScalerBusy: another one scales just now.
        TurnLost: this one was held up, and another one has scaled since its plan was made.
    """
    actor = services.actor or "somebody"
    holder = f"{actor} ({uuid.uuid4().hex[:8]})"
    services.ledger.take_turn(holder, TURN)
    try:
        services.ledger.note_watch(services.clock())
        asked = scalers(services)
        found = _planned(services, scaling_snapshot(services, asked, mark=True))
        for problem in found.problems:
            say(f"not scaled, for its state is not known: {problem}")
        if found.foreseen:
            say(found.foreseen)
        note_effects(services, found.seen, say)
        for target in found.plan:
            tell_given_up(services, target, say)
        changes, problems = [], list(found.problems)
        for target in filter(found.differs, found.plan):
            services.ledger.keep_turn(holder, TURN)  # it may be another one's by now, or have been
            change = _carry_out(services, found, asked[target.cluster], target, actor, say)
            changes.append(change)
            problems += [f"{target.cluster}/{target.pool}: {change.problem}"] if change.problem else []
        services.ledger.note_look(found.look, every=NOTED_EVERY, remembered=MEMORY)
        return dataclasses.replace(found, changes=tuple(changes), problems=tuple(problems))
    finally:
        services.ledger.end_turn(holder)


def _planned(services: Services, seen: ScalingSnapshot) -> Scaled:
    foresight = foresee(services.ledger, services.configuration, seen.taken_at)
    rules = services.configuration.scaling
    plan = plan_scaling(seen, foresight.forecasts, rules)
    return Scaled(
        look=ScalingLook(snapshot=seen, forecasts=foresight.forecasts, rules=rules, plan=plan),
        plan=tuple(_draining(seen, target) for target in plan),
        closed=closed_nodes(services),
        foreseen=foresight.told,
        problems=tuple(f"{cluster}/{pool}: {why}" for (cluster, pool), why in seen.unknown.items()),
    )


def _carry_out(
    services: Services,
    found: Scaled,
    scaler: NodePoolScaler | SpillwayError,
    target: PoolTarget,
    actor: str,
    say: Say,
) -> ScalingChange:
    """The change as it is on record once its provider has answered."""
    assert not isinstance(scaler, SpillwayError), "a pool without a scaler is unknown, which nothing changes"
    use, ledger = found.use(target), services.ledger
    change = ledger.begin_change(target, before=use.wanted, actor=actor, now=services.clock(), look=found.look)
    try:
        stayed = scaler.set_target(target.pool, target.nodes, remove=target.remove, drain=target.drains)
    except SpillwayError as problem:
        change = ledger.change_failed(change, str(problem))
        say(f"{found.told(target)}\n  not done ({change.tries}. try): {problem}")
        tell_refused(services, change, say)
        return change
    change = dataclasses.replace(change, target=as_taken(target, use, stayed))
    tell_failed(services, use, change, say)
    change = ledger.change_is_asked(change, services.clock())
    kept = "".join(f"\n  {clamp}" for clamp in change.target.clamps if clamp not in target.clamps)
    say(found.told(target) + kept)
    return change


def as_taken(target: PoolTarget, use: PoolUse, stayed: Collection[str]) -> PoolTarget:
    """The target as its provider has taken it: a node to which a pod was bound meanwhile stays, and is used again.

    It is one of the nodes that were asked for, in place of one that is on order, and more of them only where more stay.
    """
    back = [name for name in target.remove if name in stayed]
    left = {*target.remove, *target.drains} - {*stayed}
    kept = sum(node.name not in left for node in use.nodes)
    return dataclasses.replace(
        target,
        nodes=max(target.nodes, kept) if back else target.nodes,
        remove=tuple(name for name in target.remove if name not in back),
        replaces=tuple(name for name in target.replaces if name not in back),
        clamps=(*target.clamps, *(f"{name} stays for a pod that came meanwhile" for name in back)),
    )


def _draining(seen: ScalingSnapshot, target: PoolTarget) -> PoolTarget:
    """With the nodes that an approved shrink takes and that have pods: they are to take no more."""
    place = (target.cluster, target.pool)
    shrinks = [order for order in seen.orders if order.kind is OrderKind.SHRINK]
    named = {name for order in shrinks if (order.cluster, order.pool) == place for name in order.remove}
    nodes = [node for use in seen.pools if (use.cluster, use.pool.name) == place for node in use.nodes]
    busy = (node.name for node in nodes if node.pods and node.name in named and node.name not in target.remove)
    return dataclasses.replace(target, drains=tuple(busy))
