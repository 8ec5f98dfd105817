"""What is promised to an attempt for which others give way, and who is told to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from spillway.ledger import Ledger
from spillway.model import (
    Attempt,
    AttemptState,
    JobSpec,
    Outcome,
    PlacementDecision,
    PlacementPolicy,
    Priority,
    QuotaShare,
    Snapshot,
    VerdictKind,
)
from spillway.placement.context import index
from spillway.placement.policy import place
from spillway.placement.preemption import still_needed
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
LENDING = placement_policy(
    preempt_after=timedelta(minutes=10),
    borrowing=True,
    quotas={name: QuotaShare(onprem=Decimal("0.5"), cloud=Decimal(0)) for name in ("research", "nlp")},
)
"""Each of the two departments owns one of the two nodes."""


def asked(
    ledger: Ledger, run: str, job: JobSpec = LOW, *, seen: Snapshot = SEEN, policy: PlacementPolicy = POLICY
) -> tuple[Attempt | None, PlacementDecision]:
    """What the run gets of two nodes, by the decision of the product."""

    def decide(whole: Snapshot) -> PlacementDecision:
        return place(job, replace(whole, taken_at=LATER), policy)

    return reserve(ledger, run, job, now=LATER, decide=decide, seen=seen, policy=policy)


def training(ledger: Ledger, run: str, job: JobSpec = LOW, *, began: int, **where: Any) -> Attempt:
    """An attempt on one of the nodes that began so many minutes ago and is carried."""
    attempt, _ = asked(ledger, run, job, **where)
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    started_at = LATER - timedelta(minutes=began)
    return ledger.advance(attempt, AttemptState.RUNNING, started_at=started_at)


def ask(ledger: Ledger, attempt: Attempt, *, seen: Snapshot = SEEN, policy: PlacementPolicy = POLICY) -> Attempt | None:
    """What comes of telling those that give way to the attempt."""

    def needed(whole: Snapshot, labels: tuple[str, ...]) -> tuple[str, ...] | None:
        return still_needed(attempt.job, attempt.candidate, labels, index(replace(whole, taken_at=LATER), policy))

    return ledger.displace(attempt, now=LATER, snapshot=seen, policy=policy, needed=needed)


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
    assert ledger.displacing(victim, LATER) is None, "what it needs is still brought"
    asking = ask(ledger, ledger.advance(first, AttemptState.STAGED))
    assert asking is not None and (asking.displaces, asking.displacing_at) == ((victim.label,), LATER)
    assert ledger.displacing(victim, LATER) == asking == ask(ledger, asking)
    assert ledger.displacing(victim, asking.lease_expires_at) is None, "nobody carries it"
    ledger.settle(asking, Outcome.CANCELLED, "nobody needs it", LATER)
    assert ledger.displacing(victim, LATER) is None


def test_nobody_is_told_who_need_not_end_any_more(ledger: Ledger) -> None:
    older, younger = training(ledger, "older", began=50), training(ledger, "younger", began=30)
    first, _ = asked(ledger, "first", URGENT)
    assert first is not None
    ledger.settle(older, Outcome.SUCCEEDED, "it is done", LATER)
    asking = ask(ledger, first)
    assert asking is not None and asking.displaces == ()
    assert ledger.displacing(younger, LATER) is None


def test_nobody_is_told_where_the_place_is_lost_meanwhile(ledger: Ledger) -> None:
    training(ledger, "older", began=50)
    victim = training(ledger, "younger", began=30)
    first, _ = asked(ledger, "first", URGENT)
    assert first is not None
    assert ask(ledger, first, seen=snapshot(cluster_state(ONPREM, nodes=()))) is None
    assert ledger.displacing(victim, LATER) is None
    assert ledger.attempts("first") == (first,)


def test_who_waits_for_another_of_its_department_to_end_takes_back_what_is_lent_in_its_turn(ledger: Ledger) -> None:
    nodes = onprem_cluster(pools=(node_pool(max_nodes=4),))
    lent: dict[str, Any] = {"seen": snapshot(cluster_state(nodes)), "policy": LENDING}
    running = [training(ledger, f"borrower{i}", began=60 - i, **lent) for i in range(4)]
    owner = replace(URGENT, department="nlp", spot_ok=True)
    for run, victim in (("first", running[3]), ("second", running[2])):
        attempt, _ = asked(ledger, run, owner, **lent)
        assert attempt is not None and attempt.displaces == (victim.label,)
        asking = ask(ledger, ledger.advance(attempt, AttemptState.STAGED), **lent)
        assert asking is not None and ledger.displacing(victim, LATER) == asking


def test_who_has_come_to_use_nothing_but_what_is_its_own_is_not_told_any_more(ledger: Ledger) -> None:
    old = node_pool(name="old", gpu_model="V100", max_nodes=1)
    nodes = onprem_cluster(pools=(node_pool(max_nodes=1), old))
    lent: dict[str, Any] = {"seen": snapshot(cluster_state(nodes)), "policy": LENDING}
    wanted = training(ledger, "wanted", replace(LOW, gpu_model="A100"), began=40, **lent)
    beside = training(ledger, "beside", replace(LOW, gpu_model="V100"), began=50, **lent)
    owner, _ = asked(ledger, "owner", job_spec(department="nlp", gpus_per_node=8, gpu_model="A100"), **lent)
    assert owner is not None and owner.displaces == (wanted.label,)
    ledger.settle(beside, Outcome.SUCCEEDED, "it is done", LATER)
    assert ask(ledger, ledger.advance(owner, AttemptState.STAGED), **lent) is None
    assert ledger.displacing(wanted, LATER) is None


def test_what_is_known_of_who_may_give_way_is_read_where_the_policy_lets_anybody(ledger: Ledger) -> None:
    attempt = training(ledger, "r", began=50)
    committed_at = LATER - timedelta(minutes=3)
    ledger.amend(attempt, committed_step=7, committed_at=committed_at, ending=VerdictKind.STALLED)
    (known,) = ledger.complete(None, URGENT, SEEN, POLICY, LATER).open_attempts
    assert (known.attempt, known.priority, known.interruptible) == ("r-1", Priority.RESEARCH, True)
    assert (known.started_at, known.committed_at, known.ending) == (attempt.started_at, committed_at, True)
    assert known.lease_expires_at == attempt.lease_expires_at
    assert ledger.complete(None, URGENT, SEEN, placement_policy(), LATER).open_attempts == ()
