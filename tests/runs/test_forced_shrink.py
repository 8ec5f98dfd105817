"""A forced shrink of the sandbox's cloud: its plan, the runs that pause or move, and the nodes that then leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spillway.errors import PlanChanged
from spillway.model import Billing, Candidate, JobSpec, MoveState, Outcome, PoolUse, Tier
from spillway.runs.scaling import scale
from spillway.runs.scaling_orders import depart, order_approved, order_fewer, plan_shrink, pool_named
from spillway.runs.scaling_outcome import is_taken_up, order_outcome
from spillway.runs.services import Services
from spillway.scaling.shrinking import Departure, Fate, ShrinkPlan, Way
from spillway.testing.carried_run import Carried
from spillway.testing.polling import eventually
from spillway.testing.sandbox_server import Installation

PLACE = "cloud/gpu"
ORIGIN = {"test": "shrink"}
MakeJob = Callable[..., JobSpec]
Carry = Callable[[JobSpec], Carried]


@pytest.fixture
def cloud(services: Services) -> Services:
    return replace(services, actor="a test")


@pytest.fixture
def training(cloud: Services, start_run: Carry, make_job: MakeJob, installation: Installation) -> Carried:
    """A run that fills one node of the cloud, where alone four GPUs are on one node, and has committed a step."""
    run = start_run(make_job(steps=400, every=2, pace=0.2, gpus_per_node=4, tier=Tier.PUBLIC))
    eventually(lambda: committed(cloud, run.run), seconds=120)
    return run


def committed(services: Services, run: str) -> int | None:
    attempt = services.ledger.open_attempt(run)
    return attempt.committed_step if attempt is not None and attempt.candidate.cluster == "cloud" else None


def pool(services: Services) -> PoolUse:
    return pool_named(services, PLACE)


def names(services: Services) -> set[str]:
    return {node.name for node in pool(services).nodes}


def scaled(services: Services) -> None:
    assert scale(services, lambda line: None).problems == ()


def node_of(services: Services, run: str) -> str:
    attempt = services.ledger.open_attempt(run)
    assert attempt is not None and attempt.node is not None
    return attempt.node


def test_a_plan_takes_the_node_without_pods_first_and_leaves_runs_alone(cloud: Services, training: Carried) -> None:
    busy = node_of(cloud, training.run)
    plan = plan_shrink(cloud, PLACE, 1)
    (idle,) = names(cloud) - {busy}
    assert (plan.leaving, plan.stays, plan.departures) == ((idle,), (training.run,), ())
    assert plan.saved_per_hour == 4 * cloud.cluster("cloud").pool("gpu").prices_per_hour["on-demand"]


def test_a_run_that_fits_nowhere_else_pauses_with_its_checkpoint_and_its_node_leaves(
    cloud: Services, training: Carried
) -> None:
    plan = plan_shrink(cloud, PLACE, 0)
    (departure,) = plan.departures
    assert (departure.run, departure.fate) == (training.run, Fate.PAUSES)
    assert departure.way.why.startswith("no other place has room for it (")
    assert "best" not in departure.way.why and "order it again" not in departure.way.why
    before = names(cloud)
    order, departures = order_approved(cloud, plan, lambda line: None, order="o", by="ann")
    assert ([*order.remove], departures) == (sorted(before), plan.departures)
    assert not is_taken_up(pool(cloud), order)
    scaled(cloud)
    assert is_taken_up(pool(cloud), order)
    assert order_approved(cloud, plan, lambda line: None, order="o", by="ann") == (order, departures)
    assert cloud.ledger.open_attempt(training.run) is not None

    done = depart(cloud, departure, "maintenance", lambda line: None, origin=ORIGIN)
    again = depart(cloud, departure, "maintenance", lambda line: None, origin=ORIGIN)
    assert done == again == f"{training.run} pauses: it commits, ends and waits for a place"
    (first,) = eventually(
        lambda: cloud.ledger.attempts(training.run), lambda found: found[0].outcome is not None, seconds=60
    )
    assert (first.outcome, first.ending) == (Outcome.PREEMPTED, "displaced")
    assert first.committed_step == first.last_step
    eventually(lambda: [node.pods for node in pool(cloud).nodes], lambda pods: not any(pods))
    scaled(cloud)
    eventually(lambda: names(cloud), lambda left: not left & before)
    outcome = order_outcome(cloud, "o", (departure,), lambda line: None)
    assert (outcome.over, outcome.as_planned) == (True, True)
    assert outcome.lines == (
        "planned: 0 nodes; now: 0, 0 of them ready",
        f"{training.run}: planned: pauses; now: pauses, waits for a place",
    )
    assert [change.target.drains for change in cloud.ledger.scaling_changes()] == [(first.node,), ()]


def test_a_run_that_cannot_move_any_more_trains_on_where_only_a_move_was_approved(
    cloud: Services, training: Carried
) -> None:
    full = Candidate(cluster="onprem", pool="gpu", billing=Billing.OWNED)  # it has no node with four GPUs
    way = Way(target=full, why="it had room")
    nodes = (node_of(cloud, training.run),)
    departure = Departure(run=training.run, attempt=1, gpus=4, fate=Fate.MOVES, way=way, nodes=nodes)
    done = depart(cloud, departure, "maintenance", lambda line: None, origin=ORIGIN)
    assert done.startswith(f"{training.run} cannot move any more, and that it pauses was not approved: ")
    attempt = cloud.ledger.open_attempt(training.run)
    assert attempt is not None and attempt.ending is None


def test_a_run_that_has_begun_again_since_its_plan_is_left_alone_wherever_it_is(
    cloud: Services, open_run: Carry, make_job: MakeJob
) -> None:
    run = open_run(make_job(gpus_per_node=2, tier=Tier.CORE))
    first = run.place()
    way = Way(target=None, why="no other place had room")
    departure = Departure(run=run.run, attempt=1, gpus=2, fate=Fate.PAUSES, way=way, nodes=("cloud-0",))
    cloud.ledger.settle(first, Outcome.PREEMPTED, "its node went away", cloud.clock())
    second = run.place()
    done = depart(cloud, departure, "maintenance", lambda line: None, origin=ORIGIN)
    assert done == f"{run.run} has left: its attempt 2 is at onprem/gpu/owned"
    assert cloud.ledger.open_attempt(run.run) == second


def test_a_run_that_came_after_the_plan_was_shown_is_not_touched_by_it(
    cloud: Services, start_run: Carry, make_job: MakeJob
) -> None:
    plan, whole = plan_shrink(cloud, PLACE, 1), plan_shrink(cloud, PLACE, 0)
    run = start_run(make_job(steps=400, every=2, pace=0.2, gpus_per_node=4, tier=Tier.PUBLIC))
    eventually(lambda: committed(cloud, run.run), seconds=120)
    busy = node_of(cloud, run.run)
    (other,) = names(cloud) - {busy}
    shown = replace(plan, leaving=(busy,))  # it was as idle as the other one
    with pytest.raises(PlanChanged) as changed:
        order_approved(cloud, shown, lambda line: None, order="o", by="ann")
    assert changed.value.differences == (
        f"{busy} was to leave and does not have to any more",
        f"{other} would leave by now, which was not approved: it stays",
    )
    assert cloud.ledger.scaling_orders() == ()
    said: list[str] = []
    order, departures = order_approved(cloud, whole, said.append, order="o", by="ann")
    assert (order.remove, departures) == ((other,), ())
    assert said == [
        f"since the plan was shown: {run.run} is on {busy} and pauses by now, which was not approved: it is left alone"
    ]


def test_a_run_that_succeeds_before_it_has_to_leave_is_told_as_that(
    cloud: Services, start_run: Carry, make_job: MakeJob
) -> None:
    run = start_run(make_job(steps=2, every=2, pace=0.0)).run
    eventually(
        lambda: cloud.ledger.attempts(run),
        lambda found: [one.outcome for one in found] == [Outcome.SUCCEEDED],
        seconds=120,
    )
    plan = ShrinkPlan(cluster="cloud", pool="gpu", before=2, nodes=2, leaving=(), stays=(), departures=())
    order_fewer(cloud, plan, order="o", by="ann")
    way = Way(target=None, why="no room")
    departure = Departure(run=run, attempt=1, gpus=1, fate=Fate.PAUSES, way=way, nodes=())
    outcome = order_outcome(cloud, "o", (departure,), lambda line: None)
    assert outcome.lines[1:] == (f"{run}: planned: pauses; now: succeeded by itself",)


def test_nodes_of_an_order_that_is_withdrawn_take_pods_again(cloud: Services, training: Carried) -> None:
    busy = node_of(cloud, training.run)
    plan = ShrinkPlan(
        cluster="cloud", pool="gpu", before=2, nodes=1, leaving=(busy,), stays=(), departures=(), saved_per_hour=None
    )
    order_fewer(cloud, plan, order="o", by="ann")
    scaled(cloud)
    assert [node.draining for node in pool(cloud).nodes if node.name == busy] == [True]
    cloud.ledger.withdraw_order("o", cloud.clock())
    scaled(cloud)
    assert [node.draining for node in pool(cloud).nodes] == [False, False]
    scaled(cloud)
    assert len(cloud.ledger.scaling_changes()) == 2
    assert timedelta() <= cloud.clock() - cloud.ledger.scaling_changes()[-1].decided_at


def test_a_run_that_fits_elsewhere_is_moved_by_the_order_of_every_move(
    cloud: Services, open_run: Carry, start_run: Carry, make_job: MakeJob
) -> None:
    blockers = [open_run(make_job(tier=Tier.CORE, gpus_per_node=2)).place() for _ in range(2)]
    run = start_run(make_job(steps=400, every=2, pace=0.2, gpus_per_node=1, tier=Tier.PUBLIC))
    eventually(lambda: committed(cloud, run.run), seconds=120)
    for blocker in blockers:
        cloud.ledger.settle(blocker, Outcome.CANCELLED, "it was in the way", cloud.clock())

    (departure,) = plan_shrink(cloud, PLACE, 0).departures
    assert departure.fate is Fate.MOVES
    done = depart(cloud, departure, "maintenance", lambda line: None, origin=ORIGIN)
    assert done == f"{run.run} moves to onprem/gpu/owned"
    (move,) = eventually(
        lambda: cloud.ledger.moves(run.run), lambda moves: moves[-1].state is MoveState.DONE, seconds=120
    )
    assert (move.origin, move.reason) == (ORIGIN, "maintenance")
