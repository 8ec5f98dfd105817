"""What another policy would have decided in place of the one in force, from what is stored of each decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from spillway.codec import encode
from spillway.demand.render import aligned
from spillway.ledger import DecisionRecord
from spillway.model import JobSpec, PlacementDecision, PlacementPolicy
from spillway.placement.context import index
from spillway.placement.explain import outcome
from spillway.placement.policy import choose
from spillway.runs.explaining import again

HEADER = ("AT (UTC)", "RUN", "JOB", "LIVE", "CANDIDATE", "MORE/HOUR")
SHOWN = 50
"""So many differences are told to a person; a program gets all of them."""


class Change(StrEnum):
    """What the candidate would have done with the job. ``OTHERWISE``: as the live policy, but others would give way, or
    it waits for something else.
    """

    ELSEWHERE = "elsewhere"
    WAITS = "waits"
    RUNS = "runs"
    OTHERWISE = "otherwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A decision that the candidate takes otherwise; ``live`` and ``candidate`` are what they come to, in words.

    ``live_per_hour`` and ``candidate_per_hour`` are what an hour of the whole job costs at the place; None where it has
    none, or where nobody knows its price.
    """

    run: str
    attempt: int | None
    taken_at: datetime
    job: str
    change: Change
    live: str
    candidate: str
    live_per_hour: Decimal | None
    candidate_per_hour: Decimal | None

    @property
    def per_hour(self) -> Decimal | None:
        """How much more an hour costs where the candidate runs it; None where one of the two is not known."""
        if self.live_per_hour is None or self.candidate_per_hour is None:
            return None
        return self.candidate_per_hour - self.live_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """What a candidate came to beside the live policy, of decisions from ``since`` and before ``until``.

    ``compared`` is how many decisions both took. Left out are those of ``other_rules``, which these rules cannot take
    again, and those ``not_rebuilt``: they do not follow from what is stored of them.
    """

    since: datetime
    until: datetime
    compared: int
    other_rules: int
    not_rebuilt: int
    differences: tuple[Difference, ...]

    @property
    def counts(self) -> Mapping[Change, int]:
        """How many differences there are of each kind."""
        found = Counter(difference.change for difference in self.differences)
        return {change: found[change] for change in Change}

    @property
    def per_hour(self) -> Decimal:
        """How much more an hour of all jobs costs that have another place, as far as both prices are known."""
        return sum((found.per_hour for found in self.differences if found.per_hour is not None), Decimal(0))

    def data(self) -> dict[str, Any]:
        """All of it for a program."""
        return {**encode(self), "counts": encode(self.counts), "per_hour": encode(self.per_hour)}

    def told(self) -> str:
        """It for a person, with the first of the differences."""
        kinds = ", ".join(f"{count} {change}" for change, count in self.counts.items() if count)
        lines = [
            f"decisions from {_moment(self.since)} to {_moment(self.until)} (UTC): {self.compared}, of which the "
            f"candidate takes {len(self.differences)} otherwise" + (f": {kinds}" if kinds else "")
        ]
        if self.counts[Change.ELSEWHERE]:
            lines.append(f"an hour of what runs elsewhere costs {self.per_hour:+.2f} in all")
        if self.other_rules:
            lines.append(f"left out: {self.other_rules} that other rules decided, which these cannot take again")
        if self.not_rebuilt:
            lines.append(f"left out: {self.not_rebuilt} that do not follow from what is stored of them")
        if self.differences:
            lines.append(aligned([HEADER, *map(_cells, self.differences[:SHOWN])]))
        if len(self.differences) > SHOWN:
            lines.append(f"and {len(self.differences) - SHOWN} more, which the JSON has")
        return "\n".join(lines)


def shadow(
    records: Iterable[DecisionRecord], candidate: PlacementPolicy, *, since: datetime, until: datetime
) -> Shadow:
    """Decide on each stored snapshot by the candidate, too; nothing is changed, and nobody is asked.

    Each decision stands for itself: what would have followed from another one is what a replay tells. The ledger wrote
    into the snapshot what the live policy asked of it: who may give way is known only where that lets anybody, and who
    comes first in the queue is told by its rules of waiting. Budgets are those of the record.
    """
    differences = []
    compared = other_rules = not_rebuilt = 0
    for stored in records:
        rebuilt = again(stored)
        if not rebuilt.rebuilt:
            other_rules += rebuilt.rebuilt is None
            not_rebuilt += rebuilt.rebuilt is False
            continue
        compared += 1
        difference = _difference(stored, _candidate_decision(stored, candidate))
        differences += [] if difference is None else [difference]
    return Shadow(
        since=since,
        until=until,
        compared=compared,
        other_rules=other_rules,
        not_rebuilt=not_rebuilt,
        differences=tuple(differences),
    )


def _candidate_decision(stored: DecisionRecord, candidate: PlacementPolicy) -> PlacementDecision:
    policy = replace(candidate, budgets=stored.policy.budgets, time_zone=stored.policy.time_zone)
    return choose(stored.job, index(stored.snapshot, policy))


def _difference(stored: DecisionRecord, other: PlacementDecision) -> Difference | None:
    live = stored.decision
    if outcome(live) == outcome(other):
        return None
    return Difference(
        run=stored.run,
        attempt=stored.attempt,
        taken_at=stored.taken_at,
        job=stored.job.name,
        change=_change(live, other),
        live=outcome(live),
        candidate=outcome(other),
        live_per_hour=_per_hour(stored.job, live),
        candidate_per_hour=_per_hour(stored.job, other),
    )


def _change(live: PlacementDecision, other: PlacementDecision) -> Change:
    if live.chosen == other.chosen:
        return Change.OTHERWISE
    if other.chosen is None:
        return Change.WAITS
    return Change.RUNS if live.chosen is None else Change.ELSEWHERE


def _per_hour(job: JobSpec, decision: PlacementDecision) -> Decimal | None:
    prices = (v.price_per_gpu_hour for v in decision.verdicts if v.candidate == decision.chosen)
    price = next(prices, None)
    return None if price is None else price * job.priced_units


def _cells(found: Difference) -> tuple[str, ...]:
    change = "-" if found.per_hour is None else f"{found.per_hour:+.2f}"
    return (_moment(found.taken_at), found.run, found.job, found.live, found.candidate, change)


def _moment(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}"
