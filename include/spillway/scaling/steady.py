"""How long a plan that changes nothing stays so while nothing happens: who replays months need not ask until then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from spillway.model import ScalableNode, ScalingSnapshot
from spillway.scaling.held import above, below, holds_from
from spillway.scaling.rules import QueueRule, ScalingRules, StepRule, UtilisationRule


def steady_until(snapshot: ScalingSnapshot, rules: ScalingRules) -> datetime | None:
    """Until when ``plan_scaling`` changes no pool, where it changes none of this snapshot; None: for good.

    That is so while pools and queue stay as they are, forecasts say the same, and clouds are measured to be as busy as
    they last were; on-premises may be as busy as it likes. It may be sooner than need be, down to ``taken_at``.
    """
    now = snapshot.taken_at
    if _by_more(snapshot, rules):
        return now
    idle = [node for use in snapshot.pools for node in use.nodes if not node.pods]
    moments = [*_of_rule(snapshot, rules, idle), *_of_pools(snapshot, rules, idle)]
    return min((moment for moment in moments if moment >= now), default=None)


def _by_more(snapshot: ScalingSnapshot, rules: ScalingRules) -> bool:
    """Whether the plan goes by more of the clock than is looked at here."""
    timed = rules.window is not None or rules.release_hours is not None
    return timed or bool(snapshot.orders or snapshot.replaced) or snapshot.money_left is not None


def _of_pools(snapshot: ScalingSnapshot, rules: ScalingRules, idle: list[ScalableNode]) -> Iterator[datetime]:
    """When a pool has cooled down, or a node has booted or idled for long enough to leave."""
    yield from (at + wait for at in snapshot.last_out.values() for wait in (rules.cool_down_out, rules.cool_down_in))
    yield from (at + rules.cool_down_in for at in snapshot.last_in.values())
    allowed = {use.boot_allowance for use in snapshot.pools}
    yield from ((node.ready_at or node.created_at) + least for node in idle if not node.gpus for least in allowed)
    if rules.idle_release is not None:
        yield from (node.idle_since + rules.idle_release for node in idle if node.idle_since is not None)


def _of_rule(snapshot: ScalingSnapshot, rules: ScalingRules, idle: list[ScalableNode]) -> Iterator[datetime]:
    now, rule, gap = snapshot.taken_at, rules.reactive, rules.largest_gap
    pools = {(use.cluster, use.pool.name) for use in snapshot.pools}
    queue = [job for job in snapshot.queue if not pools.isdisjoint(job.places)]  # others want nothing of them
    yield from (job.hold_until for job in queue if job.hold_until is not None)
    if isinstance(rule, QueueRule):
        if rule.within and queue:
            yield now
        yield from (job.since + rule.after for job in queue)
    elif isinstance(rule, StepRule):
        if queue:
            yield now
        old = [node.idle_since + rule.in_idle for node in idle if node.idle_since is not None]
        yield from (max(now, moment) for moment in old)
    elif isinstance(rule, UtilisationRule):
        for condition, lasting in ((above(rule.out_above), rule.out_after), (below(rule.in_below), rule.in_after)):
            moment = holds_from(condition, snapshot.cloud, now, lasting=lasting, largest_gap=gap)
            if moment is not None and moment > now:
                yield moment
