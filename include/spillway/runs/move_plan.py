"""What moving a run would come to, asked of the ledger, its pod, and the stores and registries; nothing is changed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from spillway.codec import encode
from spillway.errors import MoveRefused, UnknownName
from spillway.migration import Advice, MoveAdvice, advise, estimate, told
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Candidate,
    Destination,
    MoveEstimate,
    PlacementDecision,
    Snapshot,
)
from spillway.placement.explain import name, rows
from spillway.runs.admission import decide, snapshot
from spillway.runs.move_facts import move_facts
from spillway.runs.services import Services

BEST = "best"
NOT_SPOT = "not-spot"
"""The best other place that nobody takes away: where a deadline moves a run."""

LEAST_WAIT = timedelta(minutes=1)
"""For a checkpoint that is thought to come at any moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Where a run would go from the place of ``leaving``, how long that takes, and whether it is worth it."""

    leaving: Attempt
    target: Candidate
    decision: PlacementDecision
    seen: Snapshot
    estimate: MoveEstimate
    advice: MoveAdvice

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"would move {self.leaving.run} from {name(self.leaving.candidate)} to {name(self.target)}\n"
            f"estimate: {told(self.estimate)}\nadvice: {self.advice.advice}: {self.advice.reason}"
        )

    @property
    def data(self) -> dict[str, Any]:
        """Plain JSON; durations are seconds, what is unknown is null."""
        expected = self.estimate
        return {
            "run": self.leaving.run,
            "attempt": self.leaving.number,
            "from": encode(self.leaving.candidate),
            "to": encode(self.target),
            "advice": encode(self.advice),
            "estimate": {
                **encode(expected),
                "known_seconds": encode(expected.known),
                "known_pause_seconds": encode(expected.known_pause),
                "unknown": list(expected.unknown),
            },
            "table": rows(self.decision),
        }


def move_plan(services: Services, run: str, where: str) -> MovePlan:
    """What ordering the run to ``where`` comes to; nothing is held or moved.

    Args:
        where: ``cluster``, ``cluster/pool``, ``cluster/pool/billing``, or ``best`` for the best other place,
            ``not-spot`` for the best one that is not spot.
    Raises:
        UnknownName: no such run, cluster, pool or billing.
        MoveRefused: the run does not train now, it is there already, or the target cannot hold it, or not now.
    """
    leaving = _training(services, run)
    wanted = dataclasses.replace(destination(services, where, run), leaving=leaving.candidate)
    seen = dataclasses.replace(snapshot(services, leaving.job), destination=wanted)
    decision = decide(services, leaving.job, seen, run)
    if decision.chosen is None:
        raise refused(run, wanted, decision)
    facts = move_facts(services, leaving, decision.chosen)
    expected = estimate(facts)
    return MovePlan(
        leaving=leaving,
        target=decision.chosen,
        decision=decision,
        seen=seen,
        estimate=expected,
        advice=advise(facts, expected),
    )


def take_advice(plan: MovePlan) -> timedelta:
    """How long the run is to be let commit first, at most; nothing where the advice is to move.

    Raises:
        MoveRefused: it is to stay.
    """
    run, here, advice = plan.leaving.run, name(plan.leaving.candidate), plan.advice
    if advice.advice is Advice.STAY:
        follows = "order it without asking for advice to move it all the same"
        raise MoveRefused(run, f"it stays at {here}, for {advice.reason}; {follows}")
    return timedelta() if advice.next_checkpoint is None else max(2 * advice.next_checkpoint, LEAST_WAIT)


def destination(services: Services, where: str, run: str) -> Destination:
    """The destination that the text names, each of its parts declared."""
    if where in {BEST, NOT_SPOT}:
        return Destination(spot=where == BEST)
    parts = where.split("/")
    if not 1 <= len(parts) <= 3 or not all(parts):
        expected = f"CLUSTER, CLUSTER/POOL, CLUSTER/POOL/BILLING, '{BEST}' or '{NOT_SPOT}'"
        raise MoveRefused(run, f"its target is '{where}', expected {expected}")
    clusters = services.configuration.clusters
    if parts[0] not in clusters:
        raise UnknownName("cluster", parts[0], [*clusters, BEST, NOT_SPOT])
    if len(parts) == 1:
        return Destination(cluster=parts[0])
    pools = {pool.name: pool for pool in clusters[parts[0]].pools}
    if parts[1] not in pools:
        raise UnknownName("pool", f"{parts[0]}/{parts[1]}", [f"{parts[0]}/{pool}" for pool in pools])
    if len(parts) == 2:
        return Destination(cluster=parts[0], pool=parts[1])
    billings = pools[parts[1]].prices_per_hour
    if parts[2] not in billings:
        raise UnknownName("place", where, [f"{parts[0]}/{parts[1]}/{billing}" for billing in billings])
    return Destination(cluster=parts[0], pool=parts[1], billing=Billing(parts[2]))


def refused(run: str, wanted: Destination, decision: PlacementDecision) -> MoveRefused:
    """Why no place that is wanted can have the run, now or ever."""
    reasons = {
        verdict.candidate: verdict.rejections for verdict in decision.verdicts if wanted.allows(verdict.candidate)
    }
    here = wanted.leaving
    if not reasons and here is not None:
        problem = f"it is at {name(here)} already, got an order to {wanted}; name another place, or '{BEST}'"
        return MoveRefused(run, problem)
    found = "; ".join(
        f"{name(place)}: " + ", ".join(f"{rejection.rule}: {rejection.reason}" for rejection in rejections)
        for place, rejections in reasons.items()
    )
    waits = any(all(rejection.waits for rejection in rejections) for rejections in reasons.values())
    follows = "order it again when that has passed" if waits else f"name another place, or '{BEST}'"
    when = "has no room for it now" if waits else "can never hold it"
    if here is not None and dataclasses.replace(wanted, leaving=None).allows(here):
        when += f" but where it is, at {name(here)}"
    return MoveRefused(run, f"{wanted} {when} ({found}); {follows}", places=found, retry_helps=waits)


def _training(services: Services, run: str) -> Attempt:
    """The run's open attempt, whose pod runs."""
    known = [record.run for record in services.ledger.runs()]
    if run not in known:
        raise UnknownName("run", run, known[-10:])
    attempts = services.ledger.attempts(run)
    if not attempts or (attempts[-1].outcome is not None and attempts[-1].outcome.goes_on):
        raise MoveRefused(
            run,
            f"it waits for a place and has nothing to move, expected one that trains; `explain --run {run}` tells what "
            "it waits for",
        )
    last = attempts[-1]
    if last.outcome is not None:
        raise MoveRefused(
            run, f"it is over ({last.outcome}: {last.reason}), expected one that trains; start a new run at the target"
        )
    if last.state is not AttemptState.RUNNING:
        raise MoveRefused(
            run,
            f"its attempt {last.number} is {last.state} at {name(last.candidate)}, expected running; order it when "
            f"`runs show {run}` says so, or cancel it",
            retry_helps=True,
        )
    return last
