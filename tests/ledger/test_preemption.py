"""What is promised to an attempt for which others give way, and who is told to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from spillway.ledger import Ledger
from spillway.model import Attempt, AttemptState, JobSpec, Outcome, PlacementDecision, Priority, Snapshot, VerdictKind
from spillway.placement.policy import place
from spillway.testing.builders import (
    candidate,
    cluster_state,
    job_spec,
    node_pool,
    onprem_cluster,
    placement_policy,
    snapshot,
)
from spillway.testing.ledger_values import NOW, reserve

POLICY = placement_policy(preempt_after=timedelta(minutes=10))
LOW = job_spec(spot_ok=True, gpus_per_node=8)
URGENT = replace(LOW, name="urgent", priority=Priority.PRODUCTION_CORE)
LATER = NOW + timedelta(hours=1)
ONPREM = onprem_cluster(pools=(node_pool(max_nodes=2),))
SEEN = snapshot(cluster_state(ONPREM))


def asked(ledger: Ledger, run: str, job: JobSpec = LOW) -> tuple[Attempt | None, PlacementDecision]:
    """What the run gets of two nodes, by the decision of the product."""

    def decide(whole: Snapshot) -> PlacementDecision:
        return place(job, replace(whole, taken_at=LATER), POLICY)

    return reserve(ledger, run, job, now=LATER, decide=decide, seen=SEEN, policy=POLICY)


def training(ledger: Ledger, run: str, *, began: int) -> Attempt:
    """An attempt on one of the nodes that began so many minutes ago and is carried."""
    attempt, _ = asked(ledger, run)
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    started_at = LATER - timedelta(minutes=began)
    return ledger.advance(attempt, AttemptState.RUNNING, started_at=started_at)


def ask(ledger: Ledger, attempt: Attempt, *, seen: Snapshot = SEEN) -> Attempt | None:
    """What comes of telling those that give way to the attempt."""

    def decide(whole: Snapshot) -> PlacementDecision:
        return place(attempt.job, replace(whole, taken_at=LATER), POLICY)

    return ledger.displace(attempt, now=LATER, snapshot=seen, policy=POLICY, decide=decide)


def test_each_newcomer_gets_the_room_of_another_one_and_the_third_waits(ledger: Ledger) -> None:
    older, younger = training(ledger, "older", began=50), training(ledger, "younger", began=30)
    first, told = asked(ledger, "first", URGENT)
    second, _ = asked(ledger, "second", URGENT)
    third, refused = asked(ledger, "third", URGENT)
    assert first is not None and second is not None
    assert (first.displaces, second.displaces) == ((younger.label,), (older.label,))
    assert told.chosen == candidate() and told.preemption is not None
    assert third is None and refused.preemption is not None
    assert refused.preemption.spared == {
        "first-1": "production-core does not come after production-core",
        "older-1": "it gives way to second-1 already",
        "second-1": "production-core does not come after production-core",
        "younger-1": "it gives way to first-1 already",
    }
    held = {promise.attempt: promise.displaces for promise in ledger.reservations()}
    assert held == {"older-1": (), "younger-1": (), "first-1": ("younger-1",), "second-1": ("older-1",)}


def test_one_is_told_to_end_while_somebody_waits_for_its_room_alone(ledger: Ledger) -> None:
    training(ledger, "older", began=50)
    victim = training(ledger, "younger", began=30)
    first, _ = asked(ledger, "first", URGENT)
    assert first is not None
    assert ledger.displacing(victim) is None, "what it needs is still brought"
    asking = ask(ledger, ledger.advance(first, AttemptState.STAGED))
    assert asking is not None and (asking.displaces, asking.displacing_at) == ((victim.label,), LATER)
    assert ledger.displacing(victim) == asking == ask(ledger, asking)
    ledger.settle(asking, Outcome.CANCELLED, "nobody needs it", LATER)
    assert ledger.displacing(victim) is None


def test_nobody_is_told_who_need_not_end_any_more(ledger: Ledger) -> None:
    older, younger = training(ledger, "older", began=50), training(ledger, "younger", began=30)
    first, _ = asked(ledger, "first", URGENT)
    assert first is not None
    ledger.settle(older, Outcome.SUCCEEDED, "it is done", LATER)
    asking = ask(ledger, first)
    assert asking is not None and asking.displaces == ()
    assert ledger.displacing(younger) is None


def test_nobody_is_told_where_the_place_is_lost_meanwhile(ledger: Ledger) -> None:
    training(ledger, "older", began=50)
    victim = training(ledger, "younger", began=30)
    first, _ = asked(ledger, "first", URGENT)
    assert first is not None
    assert ask(ledger, first, seen=snapshot(cluster_state(ONPREM, nodes=()))) is None
    assert ledger.displacing(victim) is None
    assert ledger.attempts("first") == (first,)


def test_what_is_known_of_who_may_give_way_is_read_where_the_policy_lets_anybody(ledger: Ledger) -> None:
    attempt = training(ledger, "r", began=50)
    committed_at = LATER - timedelta(minutes=3)
    ledger.amend(attempt, committed_step=7, committed_at=committed_at, ending=VerdictKind.STALLED)
    (known,) = ledger.complete(None, URGENT, SEEN, POLICY, LATER).open_attempts
    assert (known.attempt, known.priority, known.interruptible) == ("r-1", Priority.RESEARCH, True)
    assert (known.started_at, known.committed_at, known.ending) == (attempt.started_at, committed_at, True)
    assert known.lease_expires_at == attempt.lease_expires_at
    assert ledger.complete(None, URGENT, SEEN, placement_policy(), LATER).open_attempts == ()
