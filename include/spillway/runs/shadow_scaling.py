"""How many nodes other rules would have wanted at each stored look of the scaler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from spillway.codec import encode
from spillway.demand.render import aligned
from spillway.errors import ConfigError
from spillway.errors.counts import counted
from spillway.ledger import ScalingLook
from spillway.model import NodePool, PoolTarget
from spillway.scaling.money import node_hour
from spillway.scaling.planner import plan_scaling
from spillway.scaling.rules import ScalingRules

HEADER = (
    "FROM (UTC)",
    "UNTIL (UTC)",
    "LOOKS",
    "POOL",
    "HAS",
    "LIVE",
    "CANDIDATE",
    "MORE/HOUR",
    "LIVE, WHY",
    "CANDIDATE, WHY",
)
SHOWN = 50
"""So many stretches of equal differences are told to a person; a program gets every difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesDiffer:
    """A look at which the candidate wants another number of nodes of a pool, which had asked for ``before``.

    ``per_hour`` is how much more an hour of the candidate's nodes costs; None where their price is not known.
    """

    taken_at: datetime
    cluster: str
    pool: str
    before: int
    live: int
    candidate: int
    per_hour: Decimal | None
    live_why: str
    candidate_why: str

    @property
    def place(self) -> str:
        return f"{self.cluster}/{self.pool}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingShadow:
    """What a candidate came to beside the live rules, of looks from ``since`` and before ``until``.

    ``compared`` is how many looks both planned at. Left out are those ``not_rebuilt``, which cannot be read, or whose
    plan does not follow from what is stored of it.
    """

    since: datetime
    until: datetime
    compared: int
    not_rebuilt: int
    differences: tuple[NodesDiffer, ...]

    @property
    def pools(self) -> Mapping[str, Mapping[str, int]]:
        """By ``cluster/pool``, at how many looks the candidate wants ``more`` nodes, and at how many ``fewer``."""
        found: dict[str, dict[str, int]] = {}
        for one in self.differences:
            counts = found.setdefault(one.place, {"more": 0, "fewer": 0})
            counts["more" if one.candidate > one.live else "fewer"] += 1
        return dict(sorted(found.items()))

    def data(self) -> dict[str, Any]:
        """All of it for a program."""
        return {**encode(self), "pools": encode(self.pools)}

    def told(self) -> str:
        """It for a person; differences that go on are one line, as long as the numbers of nodes stay."""
        looks = len({one.taken_at for one in self.differences})
        lines = [
            f"looks of the scaler from {_moment(self.since)} to {_moment(self.until)} (UTC): {self.compared}; at "
            f"{looks} the candidate wants other numbers of nodes"
        ]
        for place, counts in self.pools.items():
            lines.append(f"{place}: more nodes at {counted(counts['more'], 'look')}, fewer at {counts['fewer']}")
        if self.not_rebuilt:
            left_out = counted(self.not_rebuilt, "look")
            lines.append(
                f"left out: {left_out} whose plan does not follow from what is stored of it, as that of a release with "
                "other rules"
            )
        rows = list(_stretches(self.differences))
        if rows:
            lines.append(aligned([HEADER, *rows[:SHOWN]]))
        if len(rows) > SHOWN:
            lines.append(f"and {counted(len(rows) - SHOWN, 'more line')}; the JSON has every difference")
        return "\n".join(lines)


def shadow_scaling(
    looks: Iterable[ScalingLook | ConfigError], candidate: ScalingRules, *, since: datetime, until: datetime
) -> ScalingShadow:
    """Plan at each stored look by the candidate, too; nothing is changed, and nobody is asked.

    Each look stands for itself: the nodes that it saw are those that the live rules had brought. What is foreseen is
    what was foreseen for the live rules, and who waits by choice is told by their ``waiting``.
    """
    differences: list[NodesDiffer] = []
    compared = not_rebuilt = 0
    for look in looks:
        if isinstance(look, ConfigError) or not follows(look):
            not_rebuilt += 1
            continue
        compared += 1
        differences += _differences(look, plan_scaling(look.snapshot, look.forecasts, candidate))
    return ScalingShadow(
        since=since, until=until, compared=compared, not_rebuilt=not_rebuilt, differences=tuple(differences)
    )


def follows(look: ScalingLook) -> bool:
    """Whether its plan follows from what is stored of it."""
    return _came_to(plan_scaling(look.snapshot, look.forecasts, look.rules)) == _came_to(look.plan)


def _came_to(plan: tuple[PoolTarget, ...]) -> list[PoolTarget]:
    """Without the reasons: another release may put them otherwise."""
    return [replace(target, contributions=(), clamps=()) for target in plan]


def _differences(look: ScalingLook, plan: tuple[PoolTarget, ...]) -> list[NodesDiffer]:
    uses = {(use.cluster, use.pool.name): use for use in look.snapshot.pools}
    found = []
    for live, other in zip(look.plan, plan, strict=True):
        if live.nodes != other.nodes:
            use = uses[live.cluster, live.pool]
            found.append(
                NodesDiffer(
                    taken_at=look.snapshot.taken_at,
                    cluster=live.cluster,
                    pool=live.pool,
                    before=use.wanted,
                    live=live.nodes,
                    candidate=other.nodes,
                    per_hour=_per_hour(use.pool, other.nodes - live.nodes),
                    live_why=live.why,
                    candidate_why=other.why,
                )
            )
    return found


def _per_hour(pool: NodePool, nodes: int) -> Decimal | None:
    price = node_hour(pool)
    return None if price is None else price * nodes


def _stretches(differences: Iterable[NodesDiffer]) -> Iterable[tuple[str, ...]]:
    """A row for those that follow each other at a pool with equal numbers, by their first moment."""
    by_pool = sorted(differences, key=lambda one: (one.place, one.taken_at))
    groups = [
        list(same) for _, same in groupby(by_pool, key=lambda one: (one.place, one.before, one.live, one.candidate))
    ]
    for same in sorted(groups, key=lambda same: (same[0].taken_at, same[0].place)):
        first, last = same[0], same[-1]
        yield (
            _moment(first.taken_at),
            _moment(last.taken_at),
            str(len(same)),
            first.place,
            str(first.before),
            str(first.live),
            str(first.candidate),
            "-" if first.per_hour is None else f"{first.per_hour:+.2f}",
            first.live_why,
            first.candidate_why,
        )


def _moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}"
