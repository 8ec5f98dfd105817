"""Whoever waits, plans or checks sees what reserving and moving decide from."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from spillway.ledger import Ledger
from spillway.model import (
    Attempt,
    AttemptState,
    Billing,
    Budget,
    Candidate,
    CoolDown,
    Destination,
    JobSpec,
    MoveEstimate,
    PlacementDecision,
    Snapshot,
)
from spillway.testing.builders import candidate, cloud_cluster, cloud_pool, cluster_state, job_spec
from spillway.testing.ledger_values import LEASE, NOW, POLICY, SNAPSHOT, reserve, reserved

HOUR = timedelta(hours=1)
JOB = job_spec(expected_duration=HOUR, finish_within=20 * HOUR)
LIMITED = replace(POLICY, budgets=(Budget(department="research", limit=Decimal(100)),))
HERE = candidate()
BOUGHT = Candidate(cluster="cloud", pool="h100", billing=Billing.ON_DEMAND)
SEEN = replace(SNAPSHOT, clusters=(cluster_state(cloud_cluster(pools=(cloud_pool(),))),))


class Deciding:
    """Chooses the place, or none, and keeps what it saw."""

    def __init__(self, place: Candidate | None) -> None:
        self.place = place
        self.saw: list[Snapshot] = []

    def __call__(self, whole: Snapshot) -> PlacementDecision:
        self.saw.append(whole)
        return PlacementDecision(job="j", taken_at=NOW, chosen=self.place, possible=True, verdicts=())


def known(ledger: Ledger, run: str, job: JobSpec = JOB, seen: Snapshot = SEEN) -> Snapshot:
    return ledger.complete(run, job, seen, LIMITED, NOW)


def running(ledger: Ledger, place: Candidate) -> Attempt:
    attempt, _ = reserve(ledger, "r", JOB, decide=Deciding(place), seen=SEEN, policy=LIMITED)
    assert attempt is not None
    for state in (AttemptState.STAGED, AttemptState.LAUNCHED):
        attempt = ledger.advance(attempt, state)
    return ledger.advance(attempt, AttemptState.RUNNING, started_at=NOW)


def test_who_waits_sees_all_that_reserving_decides_from(ledger: Ledger) -> None:
    reserved(ledger, "another")
    ledger.cool_down(CoolDown(cluster="onprem", pool="a100", until=NOW + HOUR, reason="lost"))
    decide = Deciding(None)
    reserve(ledger, "r", JOB, decide=decide, seen=SEEN, policy=LIMITED)
    [decided] = decide.saw
    assert known(ledger, "r") == decided
    assert ledger.for_job("r", JOB, ledger.with_promises(SEEN, LIMITED, NOW), LIMITED, NOW) == decided
    assert [r.attempt for r in decided.reservations] == ["another-1"]
    assert (decided.requester, len(decided.budgets), len(decided.cool_downs)) == ("train", 1, 1)
    assert decided.schedule is not None


def test_of_a_job_that_nobody_has_asked_for_whoever_looks_says_which_dag_would(ledger: Ledger) -> None:
    reserved(ledger, "r")
    asked = replace(SEEN, requester="nightly")
    assert ledger.complete(None, JOB, asked, LIMITED, NOW).requester == "nightly"
    assert known(ledger, "r", seen=asked).requester == "train"


def test_who_plans_or_checks_a_move_sees_what_ordering_decides_from(ledger: Ledger) -> None:
    leaving = running(ledger, BOUGHT)
    wanted = Destination(cluster="onprem", leaving=BOUGHT)
    planned = known(ledger, "r", seen=replace(SEEN, destination=wanted))
    decide = Deciding(HERE)
    ledger.order_move(
        leaving,
        destination=wanted,
        reason="maintenance",
        origin={},
        estimate=MoveEstimate(beforehand={}, pause={}),
        now=NOW,
        lease=LEASE,
        snapshot=SEEN,
        policy=LIMITED,
        decide=decide,
    )
    checked = known(ledger, "r", seen=replace(SEEN, destination=wanted))
    assert [planned, checked] == decide.saw * 2
    [budget] = planned.budgets
    assert budget.reserved == 0, "what is left of where it is is given up for where it goes"
    assert planned.schedule is not None
    assert planned.requester == "train"
