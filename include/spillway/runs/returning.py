"""Which runs in clouds go back to on-premises now, because it has room again and that saves money; nothing is moved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from spillway.errors import MoveRefused, SpillwayError
from spillway.model import Attempt, AttemptState, Candidate, ClusterState, SiteKind
from spillway.placement.context import index
from spillway.runs.move_facts import move_facts
from spillway.runs.move_plan import MovePlan, move_plan
from spillway.runs.services import Say, Services
from spillway.scaling.packing import FreeNodes
from spillway.scaling.returning import BoughtRun, plan_returns


@dataclass(frozen=True, slots=True, kw_only=True)
class Homecoming:
    """A run that is to go back, where to, and why."""

    run: str
    target: Candidate
    reason: str

    @property
    def where(self) -> str:
        """The target as an order names it."""
        return f"{self.target.cluster}/{self.target.pool}/{self.target.billing}"


def homecomings(services: Services, say: Say) -> tuple[Homecoming, ...]:
    """The runs that go back now by the rules, each to the place that a placement gives it; none without such a rule.

    A run that cannot be asked about now stays where it is, and stops no other.
    """
    rules, now = services.configuration.scaling.returning, services.clock()
    if rules is None:
        return ()
    plans: dict[str, MovePlan] = {}
    bought: dict[tuple[str, str], list[BoughtRun]] = {}
    described: dict[str, ClusterState] = {}
    for attempt in _bought(services):
        if attempt.started_at is None or now - attempt.started_at < rules.after:
            continue
        try:
            plan = _plan_home(services, attempt)
            here = attempt.candidate.cluster
            if here not in described:
                described[here] = services.site(here).client.describe()
            run = _bought_run(services, attempt, plan, described[here])
        except SpillwayError as problem:
            say(f"{attempt.run} stays: {problem}")
            continue
        plans[attempt.run] = plan
        bought.setdefault((plan.target.cluster, plan.target.pool), []).append(run)
    found = []
    for pool, runs in sorted(bought.items()):
        free = _free(services, plans[runs[0].run], pool)
        for back in plan_returns(runs, free, rules, now):
            found.append(Homecoming(run=back.run, target=plans[back.run].target, reason=back.reason))
    return tuple(found)


def _bought(services: Services) -> tuple[Attempt, ...]:
    """The attempts that train on bought GPUs, of runs of which no move is under way."""
    running = (
        attempt
        for attempt in services.ledger.recent_attempts(services.clock())
        if attempt.state is AttemptState.RUNNING and attempt.candidate.billing.bought and attempt.job.gpus_per_node
    )
    return tuple(attempt for attempt in running if services.ledger.open_move(attempt.run) is None)


def _plan_home(services: Services, attempt: Attempt) -> MovePlan:
    """The plan of the run's move to the first on-premises cluster that takes it now; raises MoveRefused: none does."""
    clusters = services.configuration.clusters.values()
    refused: MoveRefused | None = None
    for cluster in clusters:
        if cluster.kind is SiteKind.ONPREM:
            try:
                return move_plan(services, attempt.run, cluster.name)
            except MoveRefused as problem:
                refused = problem
    raise refused or MoveRefused(attempt.run, "no cluster on-premises is declared")


def _bought_run(services: Services, attempt: Attempt, plan: MovePlan, state: ClusterState) -> BoughtRun:
    now, attempts = services.clock(), services.ledger.attempts(attempt.run)
    parts = [(one.ended_at or now) - one.started_at for one in attempts if one.started_at is not None]
    nodes = {pod.node for pod in state.pods if pod.attempt == attempt.label and pod.node is not None}
    others = (pod.gpus for pod in state.pods if pod.node in nodes and pod.attempt != attempt.label)
    assert attempt.started_at is not None
    return BoughtRun(
        run=attempt.run,
        gpus_per_node=attempt.job.gpus_per_node,
        nodes=attempt.job.nodes,
        since=attempt.started_at,
        trained=sum(parts, timedelta()),
        expected=attempt.job.expected_duration,
        neighbours=sum(others),
        facts=move_facts(services, attempt, plan.target),
    )


def _free(services: Services, plan: MovePlan, pool: tuple[str, str]) -> FreeNodes:
    """What is free in the pool beside all that is promised there."""
    seen, policy, leaving = plan.seen, services.configuration.policy, plan.leaving
    whole = services.ledger.complete(leaving.run, leaving.job, seen, policy, seen.taken_at)
    return FreeNodes(room.gpus for room in index(whole, policy).capacities[pool].free.values())
